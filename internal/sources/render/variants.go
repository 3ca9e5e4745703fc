package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/overrides"
)

// Variant is what is read for some clusters in place of the content.
type Variant struct {
	Name string `json:"name"`
	// Paths in place of those of the Want; empty: the same.
	Paths   []string `json:"paths,omitempty"`
	Options Options  `json:"options"`
	// Patches change objects of the variant.
	Patches []json.RawMessage `json:"patches,omitempty"`
}

// VariantJob is the part of a Job that makes the objects of a variant, of the files of the Job.
type VariantJob struct {
	Name    string            `json:"name"`
	Plain   []string          `json:"plain,omitempty"`
	Builds  []Build           `json:"builds,omitempty"`
	Options Options           `json:"options"`
	Patches []json.RawMessage `json:"patches,omitempty"`
}

// VariantResult is how a variant differs from the objects of its Result.
type VariantResult struct {
	Name string `json:"name"`
	// Objects that only the variant has, or that differ.
	Objects []Object `json:"objects,omitempty"`
	// Absent are indexes of objects that the variant has not got, or has in another form.
	Absent []int `json:"absent,omitempty"`
}

// newVariantJob returns a Job of the objects of a variant.
func (j Job) newVariantJob(v VariantJob) Job {
	return Job{Plain: v.Plain, Builds: v.Builds, Files: j.Files, Options: v.Options, Inputs: j.Inputs}
}

// RenderVariants renders a Job and its variants. Equal inputs are rendered once. A variant that is not rendered as a whole
// makes the Result incomplete.
func RenderVariants(j Job, run func(Job) Result) Result {
	base := run(Job{Plain: j.Plain, Builds: j.Builds, Files: j.Files, Options: j.Options, Inputs: j.Inputs})
	if base.Failure != nil || len(base.Problems) > 0 {
		return base
	}
	type rendering struct {
		of     VariantJob
		result Result
	}
	done := []rendering{{VariantJob{Plain: j.Plain, Builds: j.Builds, Options: j.Options}, base}}
	out, size := base, 0
	for _, v := range j.Variants {
		isSame := func(r rendering) bool {
			return slices.Equal(r.of.Plain, v.Plain) && reflect.DeepEqual(r.of.Builds, v.Builds) && reflect.DeepEqual(r.of.Options, v.Options)
		}
		i := slices.IndexFunc(done, isSame)
		if i < 0 {
			i = len(done)
			done = append(done, rendering{v, run(j.newVariantJob(v))})
		}
		if incomplete, ok := done[i].result.nameVariant(v.Name); ok {
			return incomplete
		}
		objects, problem := patchObjects(v, done[i].result.Objects)
		if problem != nil {
			return Result{Problems: []Problem{*problem}}
		}
		one := compareVariant(v.Name, base.Objects, objects)
		own := one.CountBytes()
		if size += own; size > MaxContentBytes {
			return Result{Failure: NewFailure(atoll.ReasonContentTooLarge, "the objects that differ in variants have more than %d bytes, of which variant %s has %d", MaxContentBytes, v.Name, own)}
		}
		out.Variants = append(out.Variants, one)
		out.addBuilds(done[i].result.Builds)
	}
	return out
}

// nameVariant returns why the result of a variant is incomplete, with its name; false when it is complete. A variant without
// an object is no exclusion.
func (r Result) nameVariant(name string) (Result, bool) {
	switch {
	case r.Failure != nil:
		return Result{Failure: NewFailure(r.Failure.Reason, "variant %s: %s", name, r.Failure.Message)}, true
	case len(r.Problems) > 0:
		return Result{Problems: inVariant(name, r.Problems)}, true
	case len(r.Objects) == 0:
		return Result{Failure: NewFailure(atoll.ReasonContentEmpty, "variant %s has no object, which is not an exclusion; state exclude: true for that", name)}, true
	}
	return Result{}, false
}

// inVariantError returns an error with the name of its variant.
func inVariantError(name string, err error) error {
	var failure *Failure
	if errors.As(err, &failure) {
		return NewFailure(failure.Reason, "variant %s: %s", name, failure.Message)
	}
	return err
}

// inVariant returns problems with the name of their variant.
func inVariant(name string, problems []Problem) []Problem {
	out := slices.Clone(problems)
	for i := range out {
		out[i].Message = "variant " + name + ": " + out[i].Message
	}
	return out
}

// addBuilds adds builds of paths that are not among those of the result.
func (r *Result) addBuilds(builds []Build) {
	for _, b := range builds {
		if !slices.ContainsFunc(r.Builds, func(had Build) bool { return had.Dir == b.Dir && had.Type == b.Type }) {
			r.Builds = append(slices.Clip(r.Builds), b)
		}
	}
}

// objectName identifies an object in a content.
type objectName struct{ group, kind, namespace, name string }

func nameOf(fields map[string]any) objectName {
	text := func(m map[string]any, key string) string {
		v, _ := m[key].(string)
		return v
	}
	group, _, found := strings.Cut(text(fields, "apiVersion"), "/")
	if !found {
		group = ""
	}
	meta, _ := fields["metadata"].(map[string]any)
	return objectName{group, text(fields, "kind"), text(meta, "namespace"), text(meta, "name")}
}

// compareVariant returns how the objects of a variant differ from those of the content.
func compareVariant(name string, base, objects []Object) VariantResult {
	out := VariantResult{Name: name}
	at := make(map[objectName]int, len(base))
	for i, o := range base {
		at[nameOf(o.Fields)] = i
	}
	same := make([]bool, len(base))
	for _, o := range objects {
		if i, has := at[nameOf(o.Fields)]; has && !same[i] && reflect.DeepEqual(base[i].Fields, o.Fields) {
			same[i] = true
			continue
		}
		out.Objects = append(out.Objects, o)
	}
	for i := range base {
		if !same[i] {
			out.Absent = append(out.Absent, i)
		}
	}
	return out
}

// CountBytes returns the bytes of the objects in JSON.
func (v *VariantResult) CountBytes() (n int) {
	for _, o := range v.Objects {
		raw, err := json.Marshal(o.Fields)
		if err != nil {
			panic(fmt.Sprintf("render: an object of decoded JSON cannot be encoded: %v", err))
		}
		n += len(raw)
	}
	return n
}

// ObjectsOf returns the objects of a variant; false when there is none of that name.
func (r *Result) ObjectsOf(name string) ([]Object, bool) {
	i := slices.IndexFunc(r.Variants, func(v VariantResult) bool { return v.Name == name })
	if i < 0 {
		return nil, false
	}
	v := r.Variants[i]
	out := make([]Object, 0, len(r.Objects)+len(v.Objects))
	for n, o := range r.Objects {
		if !slices.Contains(v.Absent, n) {
			out = append(out, o)
		}
	}
	return append(out, v.Objects...), true
}

// patchObjects returns the objects of a variant with its patches. It changes no argument.
func patchObjects(v VariantJob, objects []Object) ([]Object, *Problem) {
	if len(v.Patches) == 0 {
		return objects, nil
	}
	out := slices.Clone(objects)
	for n, raw := range v.Patches {
		why := ""
		if out, why = patchOne(out, raw); why != "" {
			return nil, &Problem{File: fmt.Sprintf("spec.variants[%s].patches[%d]", v.Name, n), Message: why}
		}
	}
	if len(out) == 0 {
		return nil, &Problem{File: fmt.Sprintf("spec.variants[%s].patches", v.Name), Message: "the patches delete every object; state exclude: true for that"}
	}
	return out, nil
}

// patchOne patches one of the objects, in place, and returns them, or why it cannot.
func patchOne(objects []Object, raw []byte) (out []Object, why string) {
	var patch map[string]any
	if err := unmarshalNumbers(bytes.TrimSpace(raw), &patch); err != nil || patch == nil {
		return nil, "the patch is no part of an object, which is a map of fields"
	}
	if why := checkObject(patch); why != "" {
		return nil, why
	}
	name := nameOf(patch)
	i := slices.IndexFunc(objects, func(o Object) bool {
		had := nameOf(o.Fields)
		if name.namespace == "" {
			had.namespace = ""
		}
		return had == name
	})
	if i < 0 {
		return nil, fmt.Sprintf("the variant has no %s %s that the patch could change", name.kind, name.name)
	}
	if patch["$patch"] == "delete" {
		return slices.Delete(objects, i, i+1), ""
	}
	fields, err := overrides.MergePart(runtime.DeepCopyJSON(objects[i].Fields), patch)
	if err != nil {
		return nil, oneLine(err.Error())
	}
	fields["apiVersion"] = objects[i].Fields["apiVersion"]
	if checkObject(fields) != "" || nameOf(fields) != nameOf(objects[i].Fields) {
		return nil, "the patch changes what identifies the object: its kind, name or namespace"
	}
	objects[i].Fields = fields
	return objects, ""
}
