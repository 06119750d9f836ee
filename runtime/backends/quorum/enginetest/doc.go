// Package enginetest tests package quorum with members of different engines: a Redis, an etcd and a
// PostgreSQL. It is a module of its own, so that users of a quorum depend on none of their
// clients.
package enginetest
