package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/lru"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret"
)

// Interpreters answer what their scripts answer, and all else as package interpret does.
// The zero value has no scripts. No argument is changed or kept; an error tells that the
// question has an answer which could not be found. All methods may be called from many
// goroutines.
type Interpreters struct {
	list []*Customization
}

// Of the interpreters of a content or a manifest. One that cannot be compiled here, as by an
// agent that is older than the hub, gives that error as its answer to all that it is asked.
func Of(list []atoll.Interpreter) Interpreters {
	var x Interpreters
	for i := range list {
		x.list = append(x.list, compiled(&list[i]))
	}
	return x
}

// Together answers as a hub does that has the customizations, whose names decide who goes
// first. Of several of one name the last is there, as when they are applied.
func Together(list []*Customization) Interpreters {
	named := map[string]*Customization{}
	for _, c := range list {
		named[c.name] = c
	}
	var x Interpreters
	for _, name := range slices.Sorted(maps.Keys(named)) {
		x.list = append(x.list, named[name])
	}
	return x
}

// mostCompiled interpreters are kept; a compiled one takes about 20 kB.
const mostCompiled = 256

// programs that were compiled last, by name and hash of the interpreter.
var programs = lru.New(mostCompiled)

func compiled(i *atoll.Interpreter) *Customization {
	key := i.Name + " " + i.Hash
	if c, ok := programs.Get(key); ok {
		return c.(*Customization)
	}
	c := compileSpec(i)
	programs.Add(key, c)
	return c
}

func compileSpec(i *atoll.Interpreter) *Customization {
	place := "ResourceInterpreter " + i.Name
	var spec v1alpha1.ResourceInterpreterSpec
	err := json.Unmarshal(i.Spec, &spec)
	if err == nil {
		var c *Customization
		if c, err = Compile(place, spec); err == nil {
			c.name, c.hash, c.whole = i.Name, i.Hash, i.Whole
			return c
		}
	}
	broken := &Customization{name: i.Name, hash: i.Hash, whole: i.Whole, target: spec.Target, rules: map[question]*rule{}}
	for _, f := range rulesOf(&spec) {
		if *f.rule != nil {
			broken.rules[f.q] = &rule{name: place, broken: err}
		}
	}
	return broken
}

// find who answers the question about the kind; nil: nobody does.
func (x Interpreters) find(gvk schema.GroupVersionKind, q question) *Customization {
	var found *Customization
	for _, c := range x.list {
		switch {
		case c.rules[q] == nil || !matches(&c.target, gvk):
		case names(&c.target, gvk):
			return c
		case found == nil:
			found = c
		}
	}
	return found
}

// Answerers tells who answers which question about objects of the kind: names of interpreters
// by the keys of the answers, such as "health".
func (x Interpreters) Answerers(gvk schema.GroupVersionKind) map[string]string {
	out := map[string]string{}
	for q := range questions {
		if c := x.find(gvk, q); c != nil {
			out[string(q)] = c.name
		}
	}
	return out
}

// Means tells whether one of them answers anything about objects of the kind.
func (x Interpreters) Means(gvk schema.GroupVersionKind) bool {
	return slices.ContainsFunc(x.list, func(c *Customization) bool { return matches(&c.target, gvk) })
}

// About tells whether one of them answers anything about objects of the kind in some
// version.
func (x Interpreters) About(gk schema.GroupKind) bool {
	return slices.ContainsFunc(x.list, func(c *Customization) bool { return meansKind(&c.target, gk) })
}

// Revises tells whether replicas of the kind are set by a script.
func (x Interpreters) Revises(gvk schema.GroupVersionKind) bool { return x.find(gvk, qRevise) != nil }

// Revise as in interpret.Revise.
func (x Interpreters) Revise(obj *unstructured.Unstructured, n int64) (*unstructured.Unstructured, error) {
	c := x.find(obj.GroupVersionKind(), qRevise)
	if c == nil {
		return interpret.Revise(obj, n)
	}
	made, _, err := c.Revise(obj.Object, n)
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: made}, nil
}

// ReplicasAt is the field that a script sets to the number of replicas of the object; not ok
// where there is no script, where it fails, and where it sets several fields or none.
func (x Interpreters) ReplicasAt(obj *unstructured.Unstructured) (path []string, ok bool) {
	if !x.Revises(obj.GroupVersionKind()) {
		return nil, false
	}
	const one, other = 1_000_003, 1_000_033 // which nobody states
	a, err := x.Revise(obj, one)
	if err != nil {
		return nil, false
	}
	b, err := x.Revise(obj, other)
	if err != nil {
		return nil, false
	}
	found := differing(a.Object, b.Object, nil)
	if len(found) != 1 {
		return nil, false
	}
	was, _ := interpret.Lookup(a.Object, found[0])
	is, _ := interpret.Lookup(b.Object, found[0])
	return found[0], was == int64(one) && is == int64(other)
}

// differing lists the paths of the fields in which b differs from a. What differs within a
// list is one field.
func differing(a, b map[string]any, at []string) (paths [][]string) {
	for _, key := range slices.Sorted(maps.Keys(b)) {
		path := append(slices.Clone(at), key)
		was, isMap := a[key].(map[string]any)
		is, alsoMap := b[key].(map[string]any)
		switch {
		case isMap && alsoMap:
			paths = append(paths, differing(was, is, path)...)
		case !reflect.DeepEqual(a[key], b[key]):
			paths = append(paths, path)
		}
	}
	return paths
}

// Retains tells whether what the member has set of objects of the kind is asked of a
// script.
func (x Interpreters) Retains(gvk schema.GroupVersionKind) bool { return x.find(gvk, qRetain) != nil }

// Retain gives the desired object with what the member has set of the observed one, of a kind
// that Retains.
func (x Interpreters) Retain(desired, observed *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	made, _, err := x.find(desired.GroupVersionKind(), qRetain).Retain(desired.Object, observed.Object)
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: made}, nil
}

// Reasons of health that scripts give, and fail to give.
const (
	// ReasonInterpreted: a script says that the object is not healthy.
	ReasonInterpreted = "Interpreted"
	// ReasonFailed: a script does not answer.
	ReasonFailed = atoll.InterpreterFailed
)

// Health as in interpret.Health. What a script fails to answer is Unknown. An object that
// is being deleted is Progressing without asking.
func (x Interpreters) Health(obj *unstructured.Unstructured) (h atoll.Health, reason, message string) {
	c := x.find(obj.GroupVersionKind(), qHealth)
	if c == nil || obj.GetDeletionTimestamp() != nil {
		return interpret.Health(obj)
	}
	told, _, err := c.Health(obj.Object)
	if err != nil {
		return atoll.Unknown, ReasonFailed, cut(err.Error(), interpret.MaxMessage)
	}
	switch told.Status {
	case "Healthy":
		return atoll.Healthy, "", ""
	case "Missing":
		return atoll.Progressing, told.Status, told.Message
	}
	return atoll.Health(told.Status), ReasonInterpreted, told.Message
}

// Judges tells whether a script says how healthy objects of the kind are.
func (x Interpreters) Judges(gvk schema.GroupVersionKind) bool { return x.find(gvk, qHealth) != nil }

// Judgement of an object in a member, as its agent reports it.
type Judgement struct {
	Health          atoll.Health
	Reason, Message string
	// Reflected is what is reported of its status.
	Reflected json.RawMessage
}

// Judge an object in a member. Where a script gives no status to report, the object's health
// is not known.
func (x Interpreters) Judge(obj *unstructured.Unstructured) (j Judgement) {
	j.Health, j.Reason, j.Message = x.Health(obj)
	var err error
	if j.Reflected, err = x.Reflect(obj); err != nil {
		j.Health, j.Reason, j.Message = atoll.Unknown, ReasonFailed, cut(err.Error(), interpret.MaxMessage)
	}
	return j
}

// MaxStatus is how many bytes of JSON a status may have that clusters report whole, since a
// script on the hub joins it.
const MaxStatus = 1 << 10

// whole is a status that is reported as it is.
type whole struct {
	Status map[string]any `json:"s"`
	// Late: the object's controller in the member has not seen its latest generation.
	Late bool `json:"late,omitempty"`
}

// Reflect as in interpret.Reflect, of the status that a script gives of an object that has
// one.
func (x Interpreters) Reflect(obj *unstructured.Unstructured) (json.RawMessage, error) {
	gvk := obj.GroupVersionKind()
	c, joins := x.find(gvk, qStatus), x.find(gvk, qAggregate)
	late := interpret.Late(obj) // a script need not pass on what tells it
	status, _ := obj.Object["status"].(map[string]any)
	if c != nil && len(status) > 0 {
		var err error
		if status, _, err = c.Reflect(obj.Object); err != nil {
			return nil, err
		}
		made := maps.Clone(obj.Object)
		if made["status"] = status; status == nil {
			delete(made, "status")
		}
		obj = &unstructured.Unstructured{Object: made}
	}
	if i := slices.IndexFunc(x.list, func(c *Customization) bool { return c.whole && matches(&c.target, gvk) }); joins == nil && i >= 0 {
		joins = x.list[i]
	}
	if joins == nil {
		return interpret.Reflect(obj), nil
	}
	if len(status) == 0 {
		return nil, nil
	}
	b, err := json.Marshal(whole{status, late})
	if err != nil {
		return nil, fmt.Errorf("its status has no JSON: %w", err)
	}
	if len(b) > MaxStatus {
		return nil, fmt.Errorf("its status has %d bytes, and at most %d are reported for %s %s, which aggregates: let it answer status with the fields that it joins", len(b), MaxStatus, Kind, joins.name)
	}
	return b, nil
}

// Joins tells whether statuses of the kind are joined by a script.
func (x Interpreters) Joins(gvk schema.GroupVersionKind) bool { return x.find(gvk, qAggregate) != nil }

// Aggregate as in interpret.Aggregate, whose observed is generation here. A script is told of
// reachable clusters, each with its own row, and of the template without its status. Which
// generation its answer is of is set as everywhere, at the top and in conditions that tell one.
func (x Interpreters) Aggregate(template *unstructured.Unstructured, divided bool, rows []interpret.RowItem, generation int64) (status map[string]any, ok bool, err error) {
	c := x.find(template.GroupVersionKind(), qAggregate)
	if c == nil {
		status, ok = interpret.Aggregate(template, divided, compact(rows), generation)
		return status, ok, nil
	}
	from := heard(rows)
	if len(from) == 0 {
		return nil, false, nil
	}
	items := make([]any, 0, len(from))
	for _, r := range from {
		items = append(items, itemOf(r))
	}
	status, _, err = c.Aggregate(template.Object, items)
	if err != nil {
		return nil, false, err
	}
	if slices.ContainsFunc(from, behind) {
		generation = 0
	}
	own, _ := template.Object["status"].(map[string]any)
	observe(own, status, max(generation, min(observed(own), template.GetGeneration())))
	return status, status != nil, nil
}

// heard are the rows that a script is told of, by cluster.
func heard(rows []interpret.RowItem) (out []*interpret.RowItem) {
	for i := range rows {
		if r := &rows[i]; !r.Away && r.Health != "" {
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(a, b *interpret.RowItem) int { return strings.Compare(a.Cluster, b.Cluster) })
	return out
}

// Question is a hash of all that Aggregate asks a script, and of the generation: while it is
// equal, so is the answer, but for an observedGeneration that the template's status has already. It
// is empty where no script is asked.
func (x Interpreters) Question(template *unstructured.Unstructured, rows []interpret.RowItem, generation int64) string {
	c := x.find(template.GroupVersionKind(), qAggregate)
	if c == nil {
		return ""
	}
	object, err := json.Marshal(stated(template.Object))
	if err != nil {
		return "" // it is asked, and tells why that fails
	}
	told := make([]byte, 0, len(rows)*64)
	for _, r := range heard(rows) {
		message := ""
		if r.Stale {
			message = r.Message
		}
		told = strconv.AppendBool(framed(framed(framed(framed(told, r.Cluster), string(r.Health)), message), string(r.Reflected)), r.Stale)
	}
	return atoll.Hash([]byte(c.name), []byte(c.hash), object, strconv.AppendInt(nil, generation, 10), told)
}

// framed text behind others, so that no two lists of texts are one.
func framed(b []byte, text string) []byte {
	return append(append(strconv.AppendInt(b, int64(len(text)), 10), ':'), text...)
}

// Whole is a status that was reported as it is; nil where it was not.
func Whole(reflected json.RawMessage) map[string]any {
	var w whole
	if utiljson.Unmarshal(reflected, &w) != nil {
		return nil
	}
	return w.Status
}

// itemOf a row, in Karmada's words.
func itemOf(r *interpret.RowItem) map[string]any {
	out := map[string]any{"clusterName": r.Cluster, "applied": !r.Stale, "health": string(r.Health)}
	if st := Whole(r.Reflected); st != nil {
		out["status"] = st
	}
	if r.Stale && r.Message != "" {
		out["appliedMessage"] = r.Message
	}
	return out
}

// compact rows: a status that was reported whole, for a script that is not there any more,
// counts as not reported.
func compact(rows []interpret.RowItem) []interpret.RowItem {
	is := func(r interpret.RowItem) bool { return strings.HasPrefix(string(r.Reflected), `{"s":`) }
	if !slices.ContainsFunc(rows, is) {
		return rows
	}
	rows = slices.Clone(rows)
	for i := range rows {
		if is(rows[i]) {
			rows[i].Reflected = nil
		}
	}
	return rows
}

// Check a ResourceInterpreter's spec. Each error is about the field that its Script names,
// such as spec.health.lua.
func Check(spec v1alpha1.ResourceInterpreterSpec) []*Error {
	_, err := Compile("", spec)
	return faults(err)
}

// faults are all that is wrong with a spec that has no place.
func faults(err error) (out []*Error) {
	if err == nil {
		return nil
	}
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, err := range all {
		var e *Error
		if !errors.As(err, &e) {
			e = &Error{Why: err.Error()}
		}
		told := *e
		told.Script = strings.TrimPrefix(told.Script, ": ")
		out = append(out, &told)
	}
	return out
}
