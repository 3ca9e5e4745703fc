package demo

import "embed"

// manifests holds hello/*.yaml, which nothing but the hub's default places, shop/*.yaml, the
// sample shop in the order of application, and later/*.yaml, the manifests that the story adds. They
// are ordinary Kubernetes manifests; only 3-policy.yaml belongs to Atoll.
//
//go:embed hello/*.yaml shop/*.yaml later/*.yaml
var manifests embed.FS
