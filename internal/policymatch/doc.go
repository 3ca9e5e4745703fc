// Package policymatch finds the policy or annotation that places an object, the Bundle that the
// object therefore belongs to, and the override policies that select an item.
//
// Contract: a pure core. It takes values and returns values, without client, clock, logger,
// goroutine or lock. Arguments stay as they are, except the PolicyIndex whose Set methods are called.
// Functions may run concurrently while no index changes. Results share memory with arguments and
// are read-only. The binder, admission, explain and preview call the same functions.
package policymatch
