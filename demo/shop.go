// Package demo holds the manifests of a sample shop, which the demo plays with.
//
// Contract: the files are ordinary Kubernetes manifests, valid as they lie here, and
// numbered in the order in which they are applied. Nothing in them is Atoll's but
// 4-policy.yaml.
package demo

import "embed"

// Shop holds shop/*.yaml, and in later/ what the story adds on the way.
//
//go:embed shop/*.yaml later/*.yaml
var Shop embed.FS
