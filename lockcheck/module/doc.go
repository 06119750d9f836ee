// Package module runs the checks of lockcheck over a whole module at once. It sees
// what the analyzers, package by package, can't: contradictions between packages that
// no program joins, such as two services of one repository.
package module
