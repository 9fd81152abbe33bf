/* kernel_features: what this kernel can do for us, found without a mount. Blocks little. */
#ifndef FS_KERNEL_FEATURES_H
#define FS_KERNEL_FEATURES_H

#include "fs/volume.h"

/* store_dir: what it lies on decides about passthrough. */
void features_probe(const char *store_dir, struct kernel_features *ret);
/* File systems stacked below a file in store_dir: 0, on overlayfs 1. */
unsigned features_backing_depth(const char *store_dir);

#endif
