// Package script is knowledge of kinds that users write: Lua or CEL that says how healthy
// an object is, how many replicas it has, what it needs and how its statuses are joined.
// It reads Atoll's ResourceInterpreter, Karmada's ResourceInterpreterCustomization and Argo
// CD's health scripts, and answers the questions that they answer.
//
// Contract: a pure core. What is read is compiled once and asked many times, from many
// goroutines at once; nothing is kept between two answers, and no argument is changed. An
// answer follows from the arguments alone: a script has no clock, no chance, no order but
// a fixed one, and its bounds are counted, not timed, so that hub, agent and laptop agree
// also on which script goes too far.
//
// Bounds of one answer in Lua: MaxSteps steps and MaxBytes bytes. A step is an instruction
// of the virtual machine; what costs more than one is charged by its size, since every
// operation that can grow or take long with its operands (concatenation, comparison,
// arithmetic, access by computed keys, new tables and functions, library calls) is made a
// call of this package's own when the script is compiled. MaxBytes counts what is made,
// also what is garbage by then, the object itself as tables included. CEL is bounded by
// its own units of cost. What goes past a bound, throws or answers nonsense gives an
// *Error that names script, function, line and reason, and nothing else stops.
//
// A Lua script sees base functions, string, table and math, as far as they cannot reach
// the host, load code, or differ from one call to the next; and require("kube"). It sees
// no metatables. print goes nowhere.
//
// Numbers are float64 in Lua: whole ones become int64 again, and one beyond 2^53 that came
// from an argument becomes exactly what it was. A table that came from a list stays a
// list, also when empty, wherever it is put; an empty table that the script made is what
// the argument has at that path, and is left out where it has nothing there.
package script
