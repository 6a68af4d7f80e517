// The conventions of verbs' results, for the C files of this directory.
#ifndef GORUN_VERBS_RESULT_H
#define GORUN_VERBS_RESULT_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

// A verb that gave no object says why in errno; some forget to.
static inline int why(void) { return errno > 0 ? errno : EIO; }

// Verbs return an errno, or -1 and set it, or its negative (old providers).
static inline int error_of(int rc) {
	if (rc == -1)
		return why();
	return rc < 0 ? -rc : rc;
}

// packed is what a post returns: how many requests were taken, and in the upper
// half the error of the first that was not.
static inline uint64_t packed(int rc, uint64_t taken) { return (uint64_t)error_of(rc) << 32 | taken; }

// result packs how many of a list of n, whose first is at list and each size
// bytes long, came before bad.
static inline uint64_t result(int rc, uintptr_t list, const void *bad, size_t size, uint32_t n) {
	if (rc == 0)
		return n;
	uint64_t taken = bad == NULL ? 0 : ((uintptr_t)bad - list) / size;
	return packed(rc, taken < n ? taken : 0);
}

#endif
