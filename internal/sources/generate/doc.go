// Package generate decides which Sources a SourceSet makes.
//
// Contract: functions are pure, and values in are not changed. Parameters are hostile: sizes are checked before anything is
// decoded or filled in. Templates have no loops, no files and no environment, and each text has a bound. One
// problem makes the whole result incomplete, so callers write no part of it. A made Source is removed only when all of this
// is true. Its generator gives other entries that were there before. The settings are the same, and the commit descends from the one
// before. The SourceSet created this very Source. Every other Source stays, with the reason. The hub and the preview call
// the same functions.
package generate

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/sources/render"
)

// Bounds of a SourceSet.
const (
	// MaxElementBytes is the largest element of a list.
	MaxElementBytes = 8 << 10
	// MaxTemplateBytes is the largest spec of a template, in JSON.
	MaxTemplateBytes = 64 << 10
	// MaxTextBytes is the longest text that a template or a function in it makes.
	MaxTextBytes = 16 << 10
	// MaxSourceBytes is the largest Source that is made, in JSON, and MaxMadeBytes the most of all of them.
	MaxSourceBytes = 128 << 10
	MaxMadeBytes   = 16 << 20
	// MaxProblems is the most problems that are reported.
	MaxProblems = render.MaxProblems
)

// Problem is why nothing is made.
type Problem struct {
	Reason atoll.Reason
	// Generator is the path of the generator in the spec; empty for the template.
	Generator string
	// File and Line of the entry, where it comes from a file.
	File    string
	Line    int
	Message string
}

// Format returns the problem with its place.
func (p Problem) Format() string {
	text := p.Message
	if p.File != "" {
		text = render.Problem{File: p.File, Line: p.Line, Message: text}.Format()
	}
	if p.Generator != "" {
		text = "spec." + p.Generator + ": " + text
	}
	return text
}

// SourceError returns the problem for a status. The author of a commit writes the name of the file.
func (p Problem) SourceError() v1alpha1.SourceError {
	text := p.Message
	if p.Generator != "" {
		text = "spec." + p.Generator + ": " + text
	}
	return v1alpha1.SourceError{File: phrase.TruncateText(phrase.EscapeLine(p.File), 512), Line: int32(p.Line), Message: phrase.TruncateText(phrase.EscapeLine(text), 512)}
}

// problems collects problems within their bound.
type problems []Problem

func (p *problems) addProblem(one Problem) {
	if len(*p) < MaxProblems {
		*p = append(*p, one)
	}
}

// Facts are what generators find outside of the spec.
type Facts struct {
	// Listings of Repositories, by the path of their generator.
	Listings map[string]*render.Listing
	// Clusters that the namespace may place on.
	Clusters []Cluster
}

// Cluster is what a clusters generator gives of a Cluster.
type Cluster struct {
	Name   string
	Labels map[string]string
}

// Entry is the parameters of one Source.
type Entry struct {
	Parameters map[string]any
	// Generator is the index in the spec.
	Generator int
	// Path of the generator in the spec, and File and Line of the entry, where it comes from a file.
	Path string
	File string
	Line int
}

// ClusterName returns the name of the Cluster that a clusters generator gave; empty for none. A text of a file or a list that can be no name
// of a Cluster is none.
func (e Entry) ClusterName() string {
	cluster, _ := e.Parameters[clusterKey].(map[string]any)
	name, _ := cluster["name"].(string)
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return ""
	}
	return name
}

func (e Entry) newProblem(reason atoll.Reason, format string, args ...any) Problem {
	return Problem{Reason: reason, Generator: e.Path, File: e.File, Line: e.Line, Message: fmt.Sprintf(format, args...)}
}
