// Package builders makes objects of Helm charts and kustomizations.
//
// Contract: RenderJob reads the files of its Job and the clock, and nothing else of its surroundings. ServeChild confines
// its process first, so that input, which is hostile, reaches no file, network or program. A chart is
// rendered twice, with two clocks. Fields that differ are noted, and other differences are a Failure. No error has a value
// of a Secret. A hook of Helm becomes a hook of Atoll, and never an ordinary object.
package builders

import (
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

// RenderJob renders a Job with its variants. No text of an error has a value of a Secret.
func RenderJob(j render.Job) render.Result {
	result := renderVariants(j)
	if isComplete(result) || !j.Inputs.HasSecrets() {
		return result
	}
	return hideValues(j, result)
}

// renderVariants renders a Job with its variants.
func renderVariants(j render.Job) render.Result {
	result := render.RenderVariants(j, renderTwice)
	if why := refuseGenerated(result); why != nil {
		return render.Result{Failure: why}
	}
	return result
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
	again := renderVariants(j)
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

// renderTwice renders a Job, and a chart a second time. Fields that differ are noted at their objects.
func renderTwice(j render.Job) render.Result {
	isChart := func(b render.Build) bool { return b.Type == render.Helm }
	now := time.Now().UTC()
	first := renderOnce(j, now)
	if !isComplete(first) || !slices.ContainsFunc(j.Builds, isChart) {
		return first
	}
	if why := noteGenerated(&first, renderOnce(j, otherClock(now))); why != "" {
		return render.Result{Failure: render.NewFailure(atoll.ReasonNotReproducible,
			"%s has another name, other fields or other objects in each rendering, by a random value or the time; set the value that it is made of in spec.build.helm.values", why)}
	}
	return first
}

// noteGenerated notes the fields of a result that differ in another one. It names what no field of the hub can stand for; empty when
// there is nothing of that.
func noteGenerated(a *render.Result, b render.Result) string {
	if len(b.Objects) != len(a.Objects) || !isComplete(b) {
		return "the chart"
	}
	for i := range a.Objects {
		paths, ok := render.FindGenerated(a.Objects[i].Fields, b.Objects[i].Fields)
		if !ok {
			return describeObject(a.Objects[i])
		}
		a.Objects[i].Generated = paths
	}
	return ""
}

// refuseGenerated returns why variants cannot have fields that differ between renderings; nil without such fields. Each variant
// is another rendering, and policies state lists as a whole.
func refuseGenerated(r render.Result) *render.Failure {
	all := r.Objects
	for _, v := range r.Variants {
		all = slices.Concat(all, v.Objects)
	}
	i := slices.IndexFunc(all, func(o render.Object) bool { return len(o.Generated) > 0 })
	if len(r.Variants) == 0 || i < 0 {
		return nil
	}
	return render.NewFailure(atoll.ReasonNotReproducible, "%s has another value in each rendering at %s, by a random value or the time, and the Source has variants; set the value that it is made of in spec.build.helm.values",
		describeObject(all[i]), all[i].Generated[0])
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
