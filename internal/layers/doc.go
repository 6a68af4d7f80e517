// Package layers holds no code: its tests hold the rest of the module to the
// table of imports in ARCHITECTURE.md, to the rules about where unsafe, cgo,
// the environment and test skips may stand, and to the words of public text.
package layers
