// Package monitoring tests the rules and the dashboards of the hub's chart with Prometheus' own
// engine. It is a module of its own, so that no other module lists Prometheus.
//
// Contract: tests alone.
package monitoring
