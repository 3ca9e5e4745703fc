// Package builders makes objects of Helm charts and kustomizations.
//
// Contract: RenderJob reads the files of its Job and the clock, and nothing else of its surroundings. ServeChild confines
// its process first, so that input, which is hostile, reaches no file, network or program. A chart is
// rendered twice, with two clocks; two different results are a Failure. No error has a value of a Secret. A hook of
// Helm becomes a hook of Atoll, and never an ordinary object.
package builders

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/childprocess"
	"atoll.dev/atoll/internal/sources/render"
	"atoll.dev/atoll/internal/sources/renderchild"
)

// ServeChild is the child: it reads a Job, and writes its Result.
func ServeChild(in io.Reader, out io.Writer) error {
	if err := childprocess.Limit(renderchild.Limits); err != nil {
		return fmt.Errorf("bound the process that renders: %w", err)
	}
	reached, err := childprocess.LimitCPU(cpuSeconds)
	if err != nil {
		return fmt.Errorf("bound the process that renders: %w", err)
	}
	var result render.Result
	if err := childprocess.Confine(); err != nil {
		result.Failure = render.NewFailure(atoll.ReasonBuildFailed, "the machine of the hub cannot take files and network away from the process that renders: %v", err)
		return json.NewEncoder(out).Encode(result)
	}
	raw, err := childprocess.ReadRequest(in, renderchild.MaxRequestBytes)
	if err != nil {
		return err
	}
	var j render.Job
	if json.Unmarshal(raw, &j) != nil {
		return errors.New("the request of a build cannot be read")
	}
	done := make(chan render.Result, 1)
	go func() { done <- RenderJob(j) }()
	select {
	case result = <-done:
	case <-reached:
		result.Failure = render.NewFailure(atoll.ReasonContentTooLarge, "the content needs more than %d seconds of a processor to be rendered", cpuSeconds)
	}
	return json.NewEncoder(out).Encode(result)
}

// cpuSeconds is the most time of a processor for one Job. Tests have less.
var cpuSeconds uint64 = 15

// RenderJob renders a Job with its variants. A chart that renders to two results is refused. No text of an error has a value of
// a Secret.
func RenderJob(j render.Job) render.Result {
	result := render.RenderVariants(j, renderTwice)
	if isComplete(result) || !j.Inputs.HasSecrets() {
		return result
	}
	return hideValues(j, result)
}

func isComplete(r render.Result) bool { return r.Failure == nil && len(r.Problems) == 0 }

// hideValues returns why a Job with values of Secrets is not rendered, as found with other values in their place. If the other
// values do not fail, the error has its place alone.
func hideValues(j render.Job, result render.Result) render.Result {
	masked, problem := j.Inputs.MaskSecrets()
	if problem != nil {
		return render.Result{Problems: []render.Problem{*problem}}
	}
	at := render.Problem{}
	if len(result.Problems) > 0 {
		at = result.Problems[0]
	}
	if _, isFile := j.Files[at.File]; !isFile {
		at = render.Problem{File: "spec.build.helm.valuesFrom"}
	}
	j.Inputs = masked
	again := render.RenderVariants(j, renderTwice)
	switch {
	case isComplete(again):
		at.Message = "it cannot be rendered with the values of the Secrets; the error may have some of them, and is left out"
		return render.Result{Problems: []render.Problem{at}}
	case again.Failure != nil:
		return render.Result{Failure: again.Failure}
	}
	for i := range again.Problems {
		again.Problems[i].Message += " (found with other values in place of those of Secrets)"
	}
	return render.Result{Problems: again.Problems}
}

// renderTwice renders a Job, and a chart a second time.
func renderTwice(j render.Job) render.Result {
	isChart := func(b render.Build) bool { return b.Type == render.Helm }
	now := time.Now().UTC()
	first := renderOnce(j, now)
	if !isComplete(first) || !slices.ContainsFunc(j.Builds, isChart) {
		return first
	}
	if why := findDifference(first, renderOnce(j, otherClock(now))); why != "" {
		return render.Result{Failure: render.NewFailure(atoll.ReasonNotReproducible,
			"%s renders to another content each time, by a random value or the time; set the value that it is made of in spec.build.helm.values", why)}
	}
	return first
}

// findDifference names the first object that differs between two results; empty when none does.
func findDifference(a, b render.Result) string {
	if len(b.Objects) != len(a.Objects) || len(b.Problems) > 0 || b.Failure != nil {
		return "the chart"
	}
	for i := range a.Objects {
		x, errX := json.Marshal(a.Objects[i].Fields)
		y, errY := json.Marshal(b.Objects[i].Fields)
		if errX != nil || errY != nil || !bytes.Equal(x, y) {
			return describeObject(a.Objects[i])
		}
	}
	return ""
}

func describeObject(o render.Object) string {
	name := ""
	if meta, ok := o.Fields["metadata"].(map[string]any); ok {
		name, _ = meta["name"].(string)
	}
	return fmt.Sprintf("%s:%d: %v %s", o.File, o.Line, o.Fields["kind"], name)
}

// renderOnce renders a Job with a clock that stands still.
func renderOnce(j render.Job, clock time.Time) render.Result {
	b := &builder{job: j, clock: clock}
	b.ReadPlain(j)
	for _, one := range j.Builds {
		if b.IsFull() {
			break
		}
		b.renderBuild(one)
	}
	if b.failure != nil {
		return render.Result{Failure: b.failure}
	}
	result := b.NewResult()
	result.Builds, result.Omitted, result.Program = b.builds, b.omitted, describeProgram()
	return result
}

// builder collects the objects of a Job.
type builder struct {
	render.Reader
	job     render.Job
	clock   time.Time
	builds  []render.Build
	omitted int
	failure *render.Failure
}

// renderBuild renders one path. A library that panics is a problem of its input.
func (b *builder) renderBuild(one render.Build) {
	marker := path.Join(one.Dir, map[render.Type]string{render.Helm: "Chart.yaml", render.Kustomize: "kustomization.yaml"}[one.Type])
	defer func() {
		if v := recover(); v != nil {
			b.ReportProblem(marker, 0, "it cannot be rendered: %.300s", fmt.Sprint(v))
		}
	}()
	switch one.Type {
	case render.Helm:
		one.Chart = b.renderChart(one)
	case render.Kustomize:
		b.buildKustomization(one)
	default:
		b.ReportProblem(one.Dir, 0, "%q is no type of a build", one.Type)
	}
	one.Files = nil
	b.builds = append(b.builds, one)
}

// libraries are the modules on which a result depends.
var libraries = []string{
	"helm.sh/helm/v4", "github.com/Masterminds/sprig/v3", "sigs.k8s.io/kustomize/api", "sigs.k8s.io/kustomize/kyaml", "sigs.k8s.io/yaml", "k8s.io/client-go",
}

// describeProgram names the libraries with their versions, and that of Go, which has the templates.
func describeProgram() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	out := []string{info.GoVersion}
	for _, d := range info.Deps {
		if slices.Contains(libraries, d.Path) {
			out = append(out, d.Path+"@"+d.Version)
		}
	}
	return strings.Join(out, " ")
}
