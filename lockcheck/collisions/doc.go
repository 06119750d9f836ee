// Package collisions defines an analyzer that finds key templates which can produce
// one key.
//
// # Analyzer collisions
//
// collisions: find key templates that can produce one key
//
// Two templates are meant to be two locks. If some values make one key of both, calls
// that have nothing to do with each other exclude each other, or, nested, wait for
// themselves:
//
//	//lock:key="order:<name>"   // a string
//	//lock:key="order:all"      // the key of the order called "all"
//
// What values can become is known from their types: order:<id> of an integer never
// makes order:all. Compared are all templates of the package and of all that it
// imports; lockgen vet compares those of the whole module.
//
// Templates with the same literals are one lock on purpose and not reported, within a
// package. Between packages they are, if their placeholders name different things:
// order:<voucherID> in one, order:<userID> in the other.
//
// Two locks of one key that are of different kinds, as a mutex and a read-write lock,
// refuse each other at run time. lockgen refuses them where one package spells both
// alike; all others are reported.
//
// Where the program imports a backend for which a / makes a path (etcd, ZooKeeper,
// Consul), a template that can be the path above another is reported as well: other
// clients of the engine take what is below a lock for its queue.
package collisions
