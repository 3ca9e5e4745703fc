package script

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/lru"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/phrase"
)

// Interpreters answer by scripts where a script covers the question, and by package kinds
// otherwise. The zero value has no scripts. No argument is changed or kept. An error means that
// the script failed. All methods are safe for concurrent use.
type Interpreters struct {
	list []*Customization
	// reportTime of health and status, in Unix seconds; 0: not stated.
	reportTime int64
}

// ForReportTime returns the interpreters for a report at a time, in Unix seconds: os.time of a script in Lua
// returns it in health and status. Equal objects and times give equal answers.
func (x Interpreters) ForReportTime(unix int64) Interpreters {
	x.reportTime = unix
	return x
}

// NewInterpreters compiles the interpreters of a content or a manifest. A rule that does not
// compile, as in an agent that is older than the hub, answers its own question with the error. The
// other rules of the interpreter work.
func NewInterpreters(list []atoll.Interpreter) Interpreters {
	var x Interpreters
	for i := range list {
		x.list = append(x.list, compileInterpreterCached(&list[i]))
	}
	return x
}

// MergeByNameLastWins orders the customizations by name, as a hub does. The last of several with one
// name wins.
func MergeByNameLastWins(list []*Customization) Interpreters {
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

// maxCompiled interpreters are cached. A compiled one takes about 20 kB.
const maxCompiled = 256

// compiledInterpreters is the cache of compiled interpreters, by name and hash.
var compiledInterpreters = lru.New(maxCompiled)

func compileInterpreterCached(i *atoll.Interpreter) *Customization {
	key := i.Name + " " + i.Hash
	if c, ok := compiledInterpreters.Get(key); ok {
		return c.(*Customization)
	}
	c := compileInterpreter(i)
	compiledInterpreters.Add(key, c)
	return c
}

func compileInterpreter(i *atoll.Interpreter) *Customization {
	place := "ResourceInterpreter " + i.Name
	var spec v1alpha1.ResourceInterpreterSpec
	err := json.Unmarshal(i.Spec, &spec)
	c := &Customization{name: i.Name, hash: i.Hash, joinsStatuses: i.ReportsWholeStatus, target: spec.Target, rules: map[question]*rule{}}
	if err == nil {
		err = checkTarget(func(path string) string { return place + ": " + path }, spec.Target)
	}
	for _, f := range ruleFieldsOf(&spec) {
		if *f.rule == nil {
			continue
		}
		if err != nil {
			c.rules[f.q] = &rule{name: place, compileError: err}
			continue
		}
		at := func(part string) string { return place + ": spec." + f.name + part }
		r, ruleErr := newRule(at, f.q, **f.rule)
		if ruleErr != nil {
			r = &rule{name: at(""), compileError: ruleErr}
		}
		c.rules[f.q] = r
	}
	return c
}

// findInterpreter returns the interpreter that answers the question about the kind; nil where
// there is none. One that names the kind exactly goes before wildcards.
func (x Interpreters) findInterpreter(gvk schema.GroupVersionKind, q question) *Customization {
	var found *Customization
	for _, c := range x.list {
		switch {
		case c.rules[q] == nil || !targetMatches(&c.target, gvk):
		case namesKindExactly(&c.target, gvk):
			return c
		case found == nil:
			found = c
		}
	}
	return found
}

// InterpretersByQuestion returns the names of the interpreters for the kind, by the keys of the
// answers, such as "health".
func (x Interpreters) InterpretersByQuestion(gvk schema.GroupVersionKind) map[string]string {
	out := map[string]string{}
	for q := range questions {
		if c := x.findInterpreter(gvk, q); c != nil {
			out[string(q)] = c.name
		}
	}
	return out
}

// AnswersKind reports whether an interpreter answers a question about the kind.
func (x Interpreters) AnswersKind(gvk schema.GroupVersionKind) bool {
	return slices.ContainsFunc(x.list, func(c *Customization) bool { return targetMatches(&c.target, gvk) })
}

// AnswersGroupKind reports whether an interpreter answers a question about some version of the
// kind.
func (x Interpreters) AnswersGroupKind(gk schema.GroupKind) bool {
	return slices.ContainsFunc(x.list, func(c *Customization) bool { return targetMatchesGroupKind(&c.target, gk) })
}

// RevisesReplicas reports whether a script sets the replicas of the kind.
func (x Interpreters) RevisesReplicas(gvk schema.GroupVersionKind) bool {
	return x.findInterpreter(gvk, qRevise) != nil
}

// ReviseReplicas is kinds.ReviseReplicas with scripts.
func (x Interpreters) ReviseReplicas(obj *unstructured.Unstructured, n int64) (*unstructured.Unstructured, error) {
	c := x.findInterpreter(obj.GroupVersionKind(), qRevise)
	if c == nil {
		return kinds.ReviseReplicas(obj, n)
	}
	made, _, err := c.ReviseReplicas(obj.Object, n)
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: made}, nil
}

// ScriptedReplicasPath returns the field that a script sets to the number of replicas. ok is false where
// there is no script, where it fails, and where it sets no field or several.
func (x Interpreters) ScriptedReplicasPath(obj *unstructured.Unstructured) (path []string, ok bool) {
	if !x.RevisesReplicas(obj.GroupVersionKind()) {
		return nil, false
	}
	const one, other = 1_000_003, 1_000_033 // unlikely values
	a, err := x.ReviseReplicas(obj, one)
	if err != nil {
		return nil, false
	}
	b, err := x.ReviseReplicas(obj, other)
	if err != nil {
		return nil, false
	}
	found := changedPaths(a.Object, b.Object, nil)
	if len(found) != 1 {
		return nil, false
	}
	was, _ := kinds.LookupPath(a.Object, found[0])
	is, _ := kinds.LookupPath(b.Object, found[0])
	return found[0], was == int64(one) && is == int64(other)
}

// changedPaths returns the paths of the fields in which b differs from a. A list counts as one
// field.
func changedPaths(a, b map[string]any, at []string) (paths [][]string) {
	for _, key := range slices.Sorted(maps.Keys(b)) {
		path := append(slices.Clone(at), key)
		was, isMap := a[key].(map[string]any)
		is, alsoMap := b[key].(map[string]any)
		switch {
		case isMap && alsoMap:
			paths = append(paths, changedPaths(was, is, path)...)
		case !reflect.DeepEqual(a[key], b[key]):
			paths = append(paths, path)
		}
	}
	return paths
}

// RetainsFields reports whether a script decides which fields of the kind the member owns.
func (x Interpreters) RetainsFields(gvk schema.GroupVersionKind) bool {
	return x.findInterpreter(gvk, qRetain) != nil
}

// RetainFields returns the desired object with the member's values of the observed one.
// RetainsFields must be true for the kind.
func (x Interpreters) RetainFields(desired, observed *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	made, _, err := x.findInterpreter(desired.GroupVersionKind(), qRetain).RetainFields(desired.Object, observed.Object)
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: made}, nil
}

// AssessHealth is kinds.AssessHealth with scripts. A script that fails gives Unknown. An object
// that is being deleted is Progressing, and no script runs.
func (x Interpreters) AssessHealth(obj *unstructured.Unstructured) (h atoll.Health, reason, message string) {
	c := x.findInterpreter(obj.GroupVersionKind(), qHealth)
	if c == nil || obj.GetDeletionTimestamp() != nil {
		return kinds.AssessHealth(obj)
	}
	health, _, err := c.ForReportTime(x.reportTime).AssessHealth(obj.Object)
	if err != nil {
		return atoll.Unknown, string(atoll.ReasonInterpreterFailed), phrase.CutText(err.Error(), kinds.MaxMessage)
	}
	switch health.Status {
	case "Healthy":
		return atoll.Healthy, "", ""
	case "Missing":
		return atoll.Progressing, health.Status, health.Message
	}
	return atoll.Health(health.Status), string(atoll.ReasonInterpreted), health.Message
}

// AssessesHealth reports whether a script judges the health of the kind.
func (x Interpreters) AssessesHealth(gvk schema.GroupVersionKind) bool {
	return x.findInterpreter(gvk, qHealth) != nil
}

// ReportedState is what an agent reports of an object.
type ReportedState struct {
	Health          atoll.Health
	Reason, Message string
	// Reflected is the reported part of the status.
	Reflected json.RawMessage
}

// ReportState returns the state of an object in a member. The health is judged by the whole object.
// The health is Unknown where the status script fails.
func (x Interpreters) ReportState(obj *unstructured.Unstructured) (j ReportedState) {
	j.Health, j.Reason, j.Message = x.AssessHealth(obj)
	var err error
	if j.Reflected, err = x.ReflectStatus(obj); err != nil {
		j.Health, j.Reason, j.Message = atoll.Unknown, string(atoll.ReasonInterpreterFailed), phrase.CutText(err.Error(), kinds.MaxMessage)
	}
	if j.Message == "" {
		j.Message = leftOutMessage(j.Reflected)
	}
	return j
}

// ReflectStatus is kinds.ReflectStatus with scripts. A status that the hub joins is reported with
// its fields, at most MaxStatus bytes of them.
func (x Interpreters) ReflectStatus(obj *unstructured.Unstructured) (json.RawMessage, error) {
	gvk := obj.GroupVersionKind()
	c, joins := x.findInterpreter(gvk, qStatus), x.findInterpreter(gvk, qAggregate)
	late := kinds.HasOutdatedStatus(obj) // a script may drop the fields that show it
	status, _ := obj.Object["status"].(map[string]any)
	if c != nil && len(status) > 0 {
		var err error
		if status, _, err = c.ForReportTime(x.reportTime).ReflectStatus(obj.Object); err != nil {
			return nil, err
		}
		made := maps.Clone(obj.Object)
		if made["status"] = status; status == nil {
			delete(made, "status")
		}
		obj = &unstructured.Unstructured{Object: made}
	}
	if i := slices.IndexFunc(x.list, func(c *Customization) bool { return c.joinsStatuses && targetMatches(&c.target, gvk) }); joins == nil && i >= 0 {
		joins = x.list[i]
	}
	if joins == nil {
		return kinds.ReflectStatus(obj), nil
	}
	if len(status) == 0 {
		return nil, nil
	}
	return encodeWholeStatus(status, late)
}

// JoinsStatuses reports whether a script joins the statuses of the kind.
func (x Interpreters) JoinsStatuses(gvk schema.GroupVersionKind) bool {
	return x.findInterpreter(gvk, qAggregate) != nil
}

// AggregateStatus is kinds.AggregateStatus with scripts, where generation is its argument
// observed. A script gets the connected clusters, each with its own row, and the template
// without its status. The observed generation of the answer is set at its top, and in its
// conditions that have one. A script judges times itself.
func (x Interpreters) AggregateStatus(template *unstructured.Unstructured, divided bool, rows []kinds.RowItem, generation, notAfter int64) (status map[string]any, ok bool, err error) {
	c := x.findInterpreter(template.GroupVersionKind(), qAggregate)
	if c == nil {
		status, ok = kinds.AggregateStatus(template, divided, dropWholeStatuses(rows), generation, notAfter)
		return status, ok, nil
	}
	from := reportingRows(rows)
	if len(from) == 0 {
		return nil, false, nil
	}
	items := make([]any, 0, len(from))
	for _, r := range from {
		items = append(items, karmadaItemOf(r))
	}
	status, _, err = c.AggregateStatus(template.Object, items)
	if err != nil {
		return nil, false, err
	}
	if slices.ContainsFunc(from, isStatusOlderThanApplied) {
		generation = 0
	}
	own, _ := template.Object["status"].(map[string]any)
	setObservedGeneration(own, status, max(generation, min(observedGenerationIn(own), template.GetGeneration())))
	return status, status != nil, nil
}

// reportingRows returns the rows that a script gets, sorted by cluster.
func reportingRows(rows []kinds.RowItem) (out []*kinds.RowItem) {
	for i := range rows {
		if r := &rows[i]; !r.Disconnected && r.Health != "" {
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(a, b *kinds.RowItem) int { return strings.Compare(a.Cluster, b.Cluster) })
	return out
}

// AggregationHash returns a hash of the generation and of all that AggregateStatus passes to a
// script. While the hash is equal, so is the answer, except for an observedGeneration that the
// template's status has already. It is empty where there is no script.
func (x Interpreters) AggregationHash(template *unstructured.Unstructured, rows []kinds.RowItem, generation int64) string {
	c := x.findInterpreter(template.GroupVersionKind(), qAggregate)
	if c == nil {
		return ""
	}
	object, err := json.Marshal(withoutServerFields(template.Object))
	if err != nil {
		return "" // AggregateStatus returns the error
	}
	reports := make([]byte, 0, len(rows)*64)
	for _, r := range reportingRows(rows) {
		message := ""
		if r.Stale {
			message = r.Message
		}
		reports = strconv.AppendBool(appendFramed(appendFramed(appendFramed(appendFramed(reports, r.Cluster), string(r.Health)), message), string(r.Reflected)), r.Stale)
	}
	return atoll.HashParts([]byte(c.name), []byte(c.hash), object, strconv.AppendInt(nil, generation, 10), reports)
}

// appendFramed appends a text with its length, so that different lists of texts never give equal
// bytes.
func appendFramed(b []byte, text string) []byte {
	return append(append(strconv.AppendInt(b, int64(len(text)), 10), ':'), text...)
}

// karmadaItemOf returns a row in Karmada's terms.
func karmadaItemOf(r *kinds.RowItem) map[string]any {
	out := map[string]any{"clusterName": r.Cluster, "applied": !r.Stale, "health": string(r.Health)}
	if st := DecodeWholeStatus(r.Reflected); st != nil {
		out["status"] = st
	}
	if r.Stale && r.Message != "" {
		out["appliedMessage"] = r.Message
	}
	return out
}

// CheckSpec returns all that is wrong with a ResourceInterpreter's spec. Script of each error is
// the field, such as spec.health.lua.
func CheckSpec(spec v1alpha1.ResourceInterpreterSpec) []*Error {
	_, err := CompileSpec("", spec)
	return splitErrors(err)
}

// splitErrors returns the joined errors of a spec that was compiled without a place.
func splitErrors(err error) (out []*Error) {
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
		unplaced := *e
		unplaced.Script = strings.TrimPrefix(unplaced.Script, ": ")
		out = append(out, &unplaced)
	}
	return out
}
