// Package enginetest holds the tests of sqllock against real databases. It is a
// module of its own, so that the drivers are no dependencies of anyone who uses
// lockgen.
package enginetest
