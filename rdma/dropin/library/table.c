//go:build cgo && linux

#include "calls.h"

// What the shim finds by dlsym.
__attribute__((visibility("default"))) const struct gd_calls gorun_verbs_calls = {
#define GD_ENTRY(name, args) .name = gd_##name,
	GD_CALLS(GD_ENTRY)
#undef GD_ENTRY
};

// An address in the library's code, for internal/cgoloader.
__attribute__((visibility("default"))) void gorun_loader_code(void) {}
