// Package enginetest tests package quorum over members of different engines: a Redis, an etcd and a
// PostgreSQL. It is a module of its own, so that who uses a quorum has none of their clients.
package enginetest
