// Package overrides applies override rules to objects, and checks overriders before they are stored.
// The table overriderTypes holds all that an override type needs; one entry adds a type.
//
// Contract: a pure core. It takes values and returns values, without client, clock, logger or
// goroutine. Functions change no argument; an ObjectPatcher changes the object that it was given.
// Functions may run concurrently; a CompiledRule and an ObjectPatcher serve one goroutine at a time.
//
// An overrider never changes the identity of an object, its status, or metadata other than labels
// and annotations. Each change has one Provenance. The placement's replicas and ordinals are applied
// after all rules, and no rule can set them unless the placement allows it.
package overrides
