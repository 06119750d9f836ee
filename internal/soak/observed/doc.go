// Command observed checks histories of the simulation and the soak against the model
// spec/Observer.tla, which says what the callers of a mutex may see, by TLC.
//
//	go run ./observed -tlc tla2tools.jar -spec ../../spec FILE.jsonl...
//
// A history must be a behaviour of the model up to its last event. Each is also altered, in
// up to three ways, and then must not be: else TLC did not check what it says. It exits with
// 1 if that is not so, and if TLC did not come to its end.
//
// Episodes whose faults take promises away (see history.Class) are left out, and locks
// that are no mutexes.
package main
