// Package deploy holds the manifests with which Atoll is installed, and embeds them in the CLI.
//
// Contract: the files are complete and valid as they are; the program that embeds them may set the
// image and the Secret, nothing else. They are generated from the charts.
package deploy

import _ "embed"

// Agent is agent.yaml: what `atoll join` applies in a member.
//
//go:embed agent.yaml
var Agent []byte

// AgentAllow is agent-allow.yaml: what lets the agent do more. Each object carries the name
// of the opt-in that it is for, in its label LabelAllow.
//
//go:embed agent-allow.yaml
var AgentAllow []byte

// AgentPolicy is agent-policy.yaml: the default limit of the hub in a member. `atoll join` creates
// it, and never overwrites an AgentPolicy.
//
//go:embed agent-policy.yaml
var AgentPolicy []byte

// AnnotationJoinToken is on the agent's pod, with the ID of the token that it was installed with.
const AnnotationJoinToken = "agent.atoll.dev/join-token"

// LabelAllow is on what lets an agent do more than it may by default.
const LabelAllow = "agent.atoll.dev/allow"
