//go:build race

package arch

// RaceEnabled tells whether this build has the race detector.
const RaceEnabled = true
