//go:build cgo && linux

// An address in the library's code, for internal/cgoloader.
__attribute__((visibility("default"))) void gorun_loader_code(void) {}
