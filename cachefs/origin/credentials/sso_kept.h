/*
 * sso_kept: renewed SSO documents whose file can't be written. They are the process's: a renewal uses
 * the refresh token in the file up, so that whoever else of the process reads the file needs the
 * document that was made of it. Any thread. Nothing here blocks.
 */
#ifndef CREDENTIALS_SSO_KEPT_H
#define CREDENTIALS_SSO_KEPT_H

/* Files; with one more the oldest is forgotten. */
#define SSO_KEPT_MAX 64

/* Takes the document over, which was made of the file's text. In place of one that was kept before. */
void sso_kept_put(const char *file, const char *text, char *document);
/* A copy of the document that was made of this text of the file, for free_secret. NULL: there is none,
 * or no memory. One that was made of another text is forgotten: the file was replaced since. */
char *sso_kept_get(const char *file, const char *text);
/* The file is what counts. */
void sso_kept_forget(const char *file);

#endif
