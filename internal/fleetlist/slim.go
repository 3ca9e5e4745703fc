package fleetlist

import (
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

// maxMessage bounds the message of a condition in an answer, in bytes.
const maxMessage = 400

// Cluster is what a list shows of a Cluster.
type Cluster struct {
	Name    string      `json:"name"`
	State   State       `json:"state"`
	Reason  string      `json:"reason,omitempty"`
	Message string      `json:"message,omitempty"`
	Since   metav1.Time `json:"since"`
	// Groups are the values of the property by which the request groups.
	Groups []string `json:"groups,omitempty"`
	*Details
}

// Details are the parts of a Cluster that a table shows and a tile does not.
type Details struct {
	Region   string `json:"region,omitempty"`
	Zone     string `json:"zone,omitempty"`
	Provider string `json:"provider,omitempty"`
	Version  string `json:"version,omitempty"`
	Agent    string `json:"agent,omitempty"`
	Nodes    string `json:"nodes,omitempty"`
	CPU      *Use   `json:"cpu,omitempty"`
	Memory   *Use   `json:"memory,omitempty"`
	Pods     *Use   `json:"pods,omitempty"`
	// Taints counts the taints.
	Taints int `json:"taints,omitempty"`
	// Drifted counts the applications with objects in the cluster that differ or are missing.
	Drifted int `json:"drifted,omitempty"`
	// Processes are the drain and the removal that are under way, in addition to the state.
	Processes []Process `json:"processes,omitempty"`
}

// Use is how much of a resource is requested.
type Use struct {
	Used float64 `json:"used"`
	Of   float64 `json:"of"`
}

// Process is a condition of a Cluster that is true while something is under way.
type Process struct {
	Type    string      `json:"type"`
	Reason  string      `json:"reason"`
	Message string      `json:"message,omitempty"`
	Since   metav1.Time `json:"since"`
}

// Shape selects the parts of a Cluster in an answer.
type Shape struct {
	// By is the property whose values are the groups; nil for none.
	By *Property
	// Tiles leaves the Details out.
	Tiles bool
}

// ToCluster returns what a list shows of the row. drifted counts the applications with drift in the cluster.
func (r *Row) ToCluster(s Shape, drifted int) Cluster {
	out := Cluster{Name: r.Name(), State: r.State, Reason: r.stateReason(), Since: metav1.Time{Time: r.stateSince()}}
	if s.By != nil {
		s.By.EachValue(r, func(value string) { out.Groups = append(out.Groups, value) })
	}
	if s.Tiles {
		return out
	}
	if r.condition != nil && r.State != Ready {
		out.Message = cutText(r.condition.Message, maxMessage)
	}
	spec, status := &r.Cluster.Spec, &r.Cluster.Status
	out.Details = &Details{
		Region: spec.Region, Zone: strings.Join(spec.ListZones(), ", "), Provider: spec.Provider, Version: status.KubernetesVersion, Agent: status.AgentVersion, Nodes: status.Nodes.Summary,
		CPU: r.useOf(corev1.ResourceCPU), Memory: r.useOf(corev1.ResourceMemory), Pods: r.useOf(corev1.ResourcePods),
		Taints: len(spec.Taints), Drifted: drifted,
	}
	for _, c := range r.findProcesses() {
		out.Processes = append(out.Processes, Process{Type: c.Type, Reason: c.Reason, Message: cutText(c.Message, maxMessage), Since: c.LastTransitionTime})
	}
	return out
}

// useOf returns how much of a resource is requested; nil where the cluster has none.
func (r *Row) useOf(name corev1.ResourceName) *Use {
	of, has := r.Cluster.Status.Resources.Allocatable[name]
	if !has || of.IsZero() {
		return nil
	}
	used := r.Cluster.Status.Resources.Requested[name]
	return &Use{Used: used.AsApproximateFloat64(), Of: of.AsApproximateFloat64()}
}

// requestedPart returns the requested part of a resource; -1 where the cluster has none.
func (r *Row) requestedPart(name corev1.ResourceName) float64 {
	u := r.useOf(name)
	if u == nil {
		return -1
	}
	return u.Used / u.Of
}

// cutText returns at most so many bytes of a text, of whole characters, and marks a cut.
func cutText(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return text[:lastCharacterEnd(text, most)] + "…"
}

// lastCharacterEnd returns the end of the last whole character in the first bytes of a longer text.
func lastCharacterEnd(text string, most int) int {
	at := most
	for at > 0 && !utf8.RuneStart(text[at]) {
		at--
	}
	return at
}

// SlimSource returns a Source with what lists show of it: without its inventory, errors, drift and settings.
func SlimSource(s *v1alpha1.Source) v1alpha1.Source {
	out := v1alpha1.Source{ObjectMeta: metav1.ObjectMeta{
		Name: s.Name, Namespace: s.Namespace, UID: s.UID, ResourceVersion: s.ResourceVersion, CreationTimestamp: s.CreationTimestamp,
	}}
	out.Spec.Repository, out.Spec.Suspend = s.Spec.Repository, s.Spec.Suspend
	in := &s.Status
	out.Status = v1alpha1.SourceStatus{
		Commit: in.Commit, ShortCommit: in.ShortCommit, Message: cutText(in.Message, maxMessage), Author: cutText(in.Author, maxMessage),
		Objects: in.Objects, Clusters: in.Clusters,
	}
	for _, c := range in.Conditions {
		c.Message = cutText(c.Message, maxMessage)
		out.Status.Conditions = append(out.Status.Conditions, c)
	}
	return out
}

// containsFold reports whether a text contains a text in lower case, whatever the case of its ASCII letters.
func containsFold(text, lower string) bool {
	for at := 0; at+len(lower) <= len(text); at++ {
		if hasPrefixFold(text[at:], lower) {
			return true
		}
	}
	return false
}

func hasPrefixFold(text, lower string) bool {
	if len(text) < len(lower) {
		return false
	}
	for i := range len(lower) {
		if lowerByte(text[i]) != lower[i] {
			return false
		}
	}
	return true
}

func equalFold(text, lower string) bool {
	return len(text) == len(lower) && hasPrefixFold(text, lower)
}

func lowerByte(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}

// lowerText returns a text with its ASCII letters in lower case, as containsFold and its like need it.
func lowerText(text string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, text)
}
