// Package templates says how generated code looks. A [File] is everything that
// one lock_gen.go says, as data; [File.Render] turns it into gofmt-clean bytes
// with jennifer.
//
// One template each: file.go the file, wrapper.go the type that guards another,
// method.go the fixed skeleton acquire, business, release, key.go the typed key
// function, policy.go the variable that holds what a directive asks for, guard.go
// what keeps a stale file from compiling, mark.go what linters read of it.
//
// A template decides nothing about names or types. Every identifier and type
// arrives as text that is valid where it stands: the generator has seen to it
// that no parameter hides an import, and jennifer would not notice.
package templates
