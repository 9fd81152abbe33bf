"""S3's LIST answers over a sorted list of keys, as pages of XML. Keys are bytes here."""

import bisect
from dataclasses import dataclass, field
from urllib.parse import quote_plus
from xml.sax.saxutils import escape

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"


@dataclass
class Page:
    keys: list = field(default_factory=list)
    prefixes: list = field(default_factory=list)
    last: bytes = b""
    truncated: bool = False


def _past(prefix):
    """The first string after all that begin with prefix."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1])


def page(keys, prefix, delimiter, after, limit):
    """keys: sorted. after: the key or common prefix with which the page before this one ended."""
    result = Page(last=after)
    i = bisect.bisect_left(keys, prefix)
    if after:
        rolled = delimiter and after.endswith(delimiter) and after.startswith(prefix) and after != prefix
        i = max(i, bisect.bisect_left(keys, _past(after)) if rolled else bisect.bisect_right(keys, after))
    while i < len(keys) and keys[i].startswith(prefix):
        if len(result.keys) + len(result.prefixes) >= limit:
            result.truncated = True
            break
        end = keys[i].find(delimiter, len(prefix)) if delimiter else -1
        if end >= 0:
            result.last = keys[i][: end + len(delimiter)]
            result.prefixes.append(result.last)
            i = bisect.bisect_left(keys, _past(result.last))
        else:
            result.last = keys[i]
            result.keys.append(keys[i])
            i += 1
    return result


def to_xml(result, describe, query, bucket, v2, limit):
    """describe(key): (size, etag, modified). query: the request's parameters."""
    url = query.get("encoding-type") == "url"

    def name(key):
        if url:
            return quote_plus(key, safe="/*")
        return escape(key.decode("utf-8", "replace"))

    def text(parameter):
        return name(query.get(parameter, "").encode("utf-8", "surrogateescape"))

    out = [f'<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="{NAMESPACE}">']
    out.append(f"<Name>{escape(bucket)}</Name><Prefix>{text('prefix')}</Prefix><MaxKeys>{limit}</MaxKeys>")
    if "delimiter" in query:
        out.append(f"<Delimiter>{text('delimiter')}</Delimiter>")
    if url:
        out.append("<EncodingType>url</EncodingType>")
    out.append(f"<IsTruncated>{'true' if result.truncated else 'false'}</IsTruncated>")
    if v2:
        out.append(f"<KeyCount>{len(result.keys) + len(result.prefixes)}</KeyCount>")
        if result.truncated:
            out.append(f"<NextContinuationToken>{result.last.hex()}</NextContinuationToken>")
    else:
        out.append(f"<Marker>{text('marker')}</Marker>")
        if result.truncated and "delimiter" in query:
            out.append(f"<NextMarker>{name(result.last)}</NextMarker>")
    for key in result.keys:
        size, etag, modified = describe(key)
        out.append(f"<Contents><Key>{name(key)}</Key><LastModified>{modified}</LastModified>"
                   f"<ETag>{escape(etag)}</ETag><Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>")
    for prefix in result.prefixes:
        out.append(f"<CommonPrefixes><Prefix>{name(prefix)}</Prefix></CommonPrefixes>")
    out.append("</ListBucketResult>")
    return "".join(out).encode()
