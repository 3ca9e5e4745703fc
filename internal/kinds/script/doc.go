// Package script runs the interpreters that users write in Lua or CEL. An interpreter answers
// how healthy an object is, how many replicas it has, what it depends on, and how its statuses
// are joined. The package reads ResourceInterpreters of Atoll, ResourceInterpreterCustomizations
// of Karmada, and health scripts of Argo CD.
//
// Contract: a pure core. A script is compiled once and evaluated often, and all evaluations
// are safe for concurrent use. Nothing is kept between two answers, and no argument is
// changed. An answer depends on the arguments alone: a script has no clock, no random numbers
// and a fixed iteration order. os.time and os.date return the stated time of the report, or else the
// time at which the object was created. The bounds are counts, not times, so hub, agent and laptop
// agree on which script exceeds them.
//
// One answer in Lua is bounded by MaxSteps steps and MaxBytes bytes. A step is one instruction
// of the virtual machine. Operations whose cost grows with their operands are charged by size:
// concatenation, comparison, arithmetic, computed keys, new tables and functions, library
// calls. The compiler turns each of them into a call of this package. MaxBytes counts all that
// the answer allocates, garbage and the tables of the arguments included. CEL is bounded by its
// own units of cost. A script that exceeds a bound, throws, or returns a wrong shape gives an
// *Error with script, function, line and reason. No other answer is affected.
//
// Lua scripts get the base functions, string, table, math and require("kube"), without
// anything that reaches the host, loads code, or differs between calls. There are no
// metatables, and print discards its arguments.
//
// The string library is written here, and not gopher-lua's, whose patterns backtrack without
// any count. ("a"):rep(100):find((".-"):rep(4) .. "b") allocates 811 MB there (2026-11-28), takes
// seconds of CPU, and a context cannot interrupt it. Here the same call ends after MaxSteps with
// 43 kB: 0.1 s and 16 MiB are the most that any script may take. To repeat the measurement:
//
//	go test -run - -bench HostilePattern -benchtime 1x ./internal/kinds/script
//
// Numbers are float64 in Lua. Whole numbers are exported as int64. A whole number of an
// argument beyond 2^53 is exported with its exact value. A table that was imported from a list
// stays a list, also when it is empty. An empty table that the script made takes the type of
// the argument's value at that path, and is left out where the argument has none.
package script
