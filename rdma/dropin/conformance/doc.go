// Package conformance has a test alone: package verbs over the libibverbs.so.1 of package dropin, held to the
// suite of package rdmatest. It needs cgo, so the test of package dropin builds and starts it.
package conformance
