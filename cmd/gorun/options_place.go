package main

// placeOptions are the options that say where on the hosts each rank runs.
func placeOptions() []option {
	return nil
}
