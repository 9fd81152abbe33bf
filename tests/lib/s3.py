"""A small S3 client over boto3: what tests do behind the mount's back."""

import boto3
import botocore.config
import botocore.handlers


class S3:
    """Keys are str; bytes in, bytes out."""

    def __init__(self, endpoint, access_key, secret_key, region="us-east-1", ca=None, addressing="path"):
        self.boto = boto3.session.Session().client(
            "s3",
            endpoint_url=endpoint,
            region_name=region,
            aws_access_key_id=access_key,
            aws_secret_access_key=secret_key,
            verify=str(ca) if ca else None,
            config=botocore.config.Config(
                signature_version="s3v4",
                s3={"addressing_style": addressing},
                retries={"total_max_attempts": 1},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )
        # On a busy machine the answer "100 Continue" comes later than botocore waits for it, and is taken for the end.
        self.boto.meta.events.unregister("before-call.s3", botocore.handlers.add_expect_header)

    def make_bucket(self, bucket):
        self.boto.create_bucket(Bucket=bucket)

    def remove_bucket(self, bucket):
        """The bucket and everything in it."""
        for key in self.list(bucket):
            self.delete(bucket, key)
        self.boto.delete_bucket(Bucket=bucket)

    def put(self, bucket, key, data, **more):
        """Returns the ETag; more: boto3's names, such as ContentEncoding."""
        return self.boto.put_object(Bucket=bucket, Key=key, Body=data, **more)["ETag"]

    def get(self, bucket, key, first=None, last=None):
        more = {} if first is None else {"Range": f"bytes={first}-{'' if last is None else last}"}
        return self.boto.get_object(Bucket=bucket, Key=key, **more)["Body"].read()

    def head(self, bucket, key):
        return self.boto.head_object(Bucket=bucket, Key=key)

    def delete(self, bucket, key):
        self.boto.delete_object(Bucket=bucket, Key=key)

    def list(self, bucket, prefix="", v1=False):
        """Every key below prefix, as the server orders them."""
        pages = self.boto.get_paginator("list_objects" if v1 else "list_objects_v2")
        found = []
        for page in pages.paginate(Bucket=bucket, Prefix=prefix):
            found += [entry["Key"] for entry in page.get("Contents", ())]
        return found
