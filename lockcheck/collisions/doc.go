// Package collisions defines an analyzer that finds key templates which can produce
// one key.
//
// # Analyzer collisions
//
// collisions: find key templates that can produce one key
//
// Two templates are meant to be two locks. If some values make the same key from both,
// unrelated calls exclude each other. If one of them calls the other, it waits for itself:
//
//	//lock:key="order:<name>"   // a string
//	//lock:key="order:all"      // the key of the order called "all"
//
// The type of a value says what text it can become: order:<id> with an integer never
// makes order:all. The check compares all templates of the package and of the packages that
// it imports. lockgen vet compares those of the whole module.
//
// Templates of one package with the same literals are one lock on purpose, and are not
// reported. Templates of two packages are reported if their placeholders name different
// things: order:<voucherID> in one, order:<userID> in the other.
//
// Two locks of one key but of different kinds, such as a mutex and a read-write lock,
// refuse each other at run time. If one package spells their keys alike, lockgen itself
// reports them. This check reports all others.
//
// Some backends take a / for a path (etcd, ZooKeeper, Consul). If the program imports one
// of them, a template that can be the path above another is reported as well, because other
// clients of the engine take all keys below a lock for its queue.
package collisions
