// Command observed uses TLC to check histories of the simulation and the soak against the
// model spec/Observer.tla, which says what the callers of a mutex may see.
//
//	go run ./observed -tlc tla2tools.jar -spec ../../spec FILE.jsonl...
//
// A history must be a behaviour of the model up to its last event. Each history is also altered
// in up to three ways. An altered history must not be a behaviour, which shows that TLC does
// check something. Observed exits with 1 if a history fails, or if TLC did not finish.
//
// Left out are episodes whose faults void guarantees (see history.Class), and locks other than
// mutexes.
package main
