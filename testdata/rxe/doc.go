// Package rxe tests gorun on real verbs: in a virtual machine with Linux's
// Soft-RoCE (internal/rxevm). `make test-rxe` runs it; being below testdata it
// is no part of "./...".
//
// One guest serves all tests but those of the machine itself and of two machines. What test
// binaries report there becomes subtests here, with the names they have.
package rxe
