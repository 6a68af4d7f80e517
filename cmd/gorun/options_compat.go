package main

// compatOptions are options of other launchers that have no family here.
func compatOptions() []option {
	return nil
}
