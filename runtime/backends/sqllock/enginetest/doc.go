// Package enginetest holds the tests of sqllock with real databases. It is a
// module of its own, so that programs that use lockgen do not depend on the
// drivers.
package enginetest
