package assess

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/testwait"
)

// newDatabase returns an object of a kind that Atoll has no rules for.
func newDatabase() map[string]any {
	return map[string]any{
		"spec": map[string]any{"nodes": int64(3), "cpu": "1500m", "factor": 1.5, "public": false, "empty": nil},
		"status": map[string]any{
			"phase": "Running", "nodes": []any{map[string]any{"name": "a"}, map[string]any{"name": "b"}},
			"conditions": []any{map[string]any{"type": "Ready", "status": "True"}, map[string]any{"type": "Backup", "status": "False"}},
		},
	}
}

func TestFeedbackHasTypes(t *testing.T) {
	long := newDatabase()
	long["text"] = strings.Repeat("x", atoll.MaxFeedbackText+1)
	for name, c := range map[string]struct {
		path string
		kind v1alpha1.FeedbackType
		want *atoll.FeedbackValue // nil: there is no value
	}{
		"a string":                  {".status.phase", v1alpha1.FeedbackString, &atoll.FeedbackValue{Value: "Running"}},
		"in braces":                 {"{.status.phase}", v1alpha1.FeedbackString, &atoll.FeedbackValue{Value: "Running"}},
		"by a filter":               {`.status.conditions[?(@.type=="Ready")].status`, v1alpha1.FeedbackString, &atoll.FeedbackValue{Value: "True"}},
		"by an index":               {".status.nodes[1].name", v1alpha1.FeedbackString, &atoll.FeedbackValue{Value: "b"}},
		"an integer":                {".spec.nodes", v1alpha1.FeedbackInteger, &atoll.FeedbackValue{Value: "3"}},
		"a number":                  {".spec.factor", v1alpha1.FeedbackNumber, &atoll.FeedbackValue{Value: "1.5"}},
		"false":                     {".spec.public", v1alpha1.FeedbackBoolean, &atoll.FeedbackValue{Value: "false"}},
		"a quantity":                {".spec.cpu", v1alpha1.FeedbackQuantity, &atoll.FeedbackValue{Value: "1500m"}},
		"a number as a quantity":    {".spec.nodes", v1alpha1.FeedbackQuantity, &atoll.FeedbackValue{Value: "3"}},
		"a list as it is":           {".status.nodes", v1alpha1.FeedbackJSON, &atoll.FeedbackValue{Value: `[{"name":"a"},{"name":"b"}]`}},
		"a string as JSON":          {".status.phase", v1alpha1.FeedbackJSON, &atoll.FeedbackValue{Value: `"Running"`}},
		"absent":                    {".status.version", v1alpha1.FeedbackString, nil},
		"behind the end of a list":  {".status.nodes[2].name", v1alpha1.FeedbackString, nil},
		"null":                      {".spec.empty", v1alpha1.FeedbackString, nil},
		"below what is absent":      {`.status.other[?(@.type=="Ready")].status`, v1alpha1.FeedbackString, nil},
		"no condition of the type":  {`.status.conditions[?(@.type=="Other")].status`, v1alpha1.FeedbackString, nil},
		"of another type":           {".spec.nodes", v1alpha1.FeedbackString, &atoll.FeedbackValue{Problem: "it is a number, and no String"}},
		"a fraction":                {".spec.factor", v1alpha1.FeedbackInteger, &atoll.FeedbackValue{Problem: "it is a number, and no Integer"}},
		"no quantity":               {".status.phase", v1alpha1.FeedbackQuantity, &atoll.FeedbackValue{Problem: "it is no quantity: "}},
		"many values":               {".status.nodes[*].name", v1alpha1.FeedbackString, &atoll.FeedbackValue{Problem: "the path leads to 2 values, and not to one"}},
		"too long":                  {".text", v1alpha1.FeedbackString, &atoll.FeedbackValue{Problem: "it has 257 bytes, and at most 256 are reported"}},
		"longer as JSON":            {".text", v1alpha1.FeedbackJSON, &atoll.FeedbackValue{Value: `"` + strings.Repeat("x", 257) + `"`}},
		"a path that is not served": {"..phase", v1alpha1.FeedbackString, &atoll.FeedbackValue{Problem: "Recursive is not allowed"}},
	} {
		rules := CompileRules(&atoll.Assessment{Feedback: []v1alpha1.FeedbackRule{{Name: "n", JSONPath: c.path, Type: c.kind}}})
		got := rules.ReadFeedback(long)
		switch {
		case c.want == nil && len(got) != 0, c.want != nil && len(got) != 1:
			t.Errorf("%s: %+v", name, got)
		case c.want != nil && (got[0].Name != "n" || got[0].Value != c.want.Value || !strings.HasPrefix(got[0].Problem, c.want.Problem) || (got[0].Problem == "") != (c.want.Problem == "")):
			t.Errorf("%s: %+v, want %+v", name, got[0], c.want)
		}
	}
}

// A value of any size costs little: it is not encoded when it is too large.
func TestALargeValueIsNotEncoded(t *testing.T) {
	list := make([]any, 1<<20)
	for i := range list {
		list[i] = map[string]any{"a": "b"}
	}
	rules := CompileRules(&atoll.Assessment{Feedback: []v1alpha1.FeedbackRule{{Name: "n", JSONPath: ".list", Type: v1alpha1.FeedbackJSON}}})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := rules.ReadFeedback(map[string]any{"list": list})
	runtime.ReadMemStats(&after)
	if made := (after.TotalAlloc - before.TotalAlloc) >> 10; made > 256 || len(got) != 1 || got[0].Problem != "it has more than 1024 bytes, which are not reported" {
		t.Errorf("%d KiB are made: %+v", made, got)
	}
	for text, want := range map[string]bool{strings.Repeat("x", 1022): true, strings.Repeat("x", 1023): false} {
		if got := rules.ReadFeedback(map[string]any{"list": text}); len(got) != 1 || (got[0].Problem == "") != want {
			t.Errorf("a text of %d bytes: %+v", len(text), got)
		}
	}
}

// Feedback of another process keeps the bounds, and has nothing of a Secret.
func TestFeedbackOfAgentsIsLimited(t *testing.T) {
	long := strings.Repeat("é", 5000)
	many := make([]atoll.FeedbackValue, 100)
	for i := range many {
		many[i] = atoll.FeedbackValue{Name: strings.Repeat("a", atoll.MaxFeedbackName), Value: long, Problem: long}
	}
	got := LimitFeedback(atoll.ItemKey{Kind: "ConfigMap", Name: "a"}, many)
	if len(got) != atoll.MaxFeedbackValues || len(got[0].Name) > atoll.MaxFeedbackName || len(got[0].Value) > atoll.MaxFeedbackJSON || len(got[0].Problem) > atoll.MaxFeedbackProblem {
		t.Errorf("%d values, the first of %d, %d and %d bytes", len(got), len(got[0].Name), len(got[0].Value), len(got[0].Problem))
	}
	var named []string
	for _, name := range []string{"a", "A-1", "", "-", "a-", "1a", "a\x1b[31m", "a\n", "a\nb", "é", "a b", strings.Repeat("a", atoll.MaxFeedbackName+1)} {
		for _, v := range LimitFeedback(atoll.ItemKey{Kind: "ConfigMap", Name: "a"}, []atoll.FeedbackValue{{Name: name, Value: "1"}}) {
			named = append(named, v.Name)
		}
	}
	if !reflect.DeepEqual(named, []string{"a", "A-1"}) {
		t.Errorf("the names are %q", named)
	}
	if got := LimitFeedback(atoll.ItemKey{Kind: "Secret", Name: "a"}, many); got != nil {
		t.Errorf("of a Secret: %+v", got)
	}
}

func TestHealthByRules(t *testing.T) {
	running := v1alpha1.HealthRule{Expression: "object.status.phase == 'Running'"}
	public := v1alpha1.HealthRule{Expression: "object.spec.public", Message: "it is not public", Reason: "Private", WhenFalse: v1alpha1.WhenFalseDegraded}
	degraded := Verdict{Health: atoll.Degraded, Reason: "Broken", Message: "the kind says so"}
	for name, c := range map[string]struct {
		rules  []v1alpha1.HealthRule
		byKind Verdict
		want   Verdict
	}{
		"no rules":            {byKind: degraded, want: degraded},
		"better than by kind": {rules: []v1alpha1.HealthRule{running}, byKind: degraded, want: Verdict{Health: atoll.Healthy}},
		"the first false one": {rules: []v1alpha1.HealthRule{running, public, {Expression: "false"}}, want: Verdict{Health: atoll.Degraded, Reason: "Private", Message: "it is not public"}},
		"without words":       {rules: []v1alpha1.HealthRule{{Expression: "object.spec.nodes > 3"}}, want: Verdict{Health: atoll.Progressing, Reason: atoll.ReasonHealthRuleUnmet, Message: "object.spec.nodes > 3 is false"}},
		"absent":              {rules: []v1alpha1.HealthRule{{Expression: "object.status.version == '1'"}}, want: Verdict{Health: atoll.Unknown, Reason: atoll.ReasonHealthRuleFailed, Message: "object.status.version == '1' cannot be evaluated: no such key: version"}},
		"no condition":        {rules: []v1alpha1.HealthRule{{Expression: "object.status.phase"}}, want: Verdict{Health: atoll.Unknown, Reason: atoll.ReasonHealthRuleFailed, Message: "object.status.phase cannot be evaluated: gives a string, and true or false is needed"}},
		"it does not compile": {rules: []v1alpha1.HealthRule{{Expression: "objekt"}}, want: Verdict{Health: atoll.Unknown, Reason: atoll.ReasonHealthRuleFailed}},
		"too expensive": {rules: []v1alpha1.HealthRule{{Expression: "[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, a+b+c+d > 0))))"}},
			want: Verdict{Health: atoll.Unknown, Reason: atoll.ReasonHealthRuleFailed}},
		"being deleted":    {rules: []v1alpha1.HealthRule{running}, byKind: Verdict{Health: atoll.Progressing, Reason: atoll.ReasonTerminating}, want: Verdict{Health: atoll.Progressing, Reason: atoll.ReasonTerminating}},
		"not observed yet": {rules: []v1alpha1.HealthRule{running}, byKind: Verdict{Health: atoll.Progressing, Reason: atoll.ReasonNotObserved}, want: Verdict{Health: atoll.Progressing, Reason: atoll.ReasonNotObserved}},
	} {
		got := CompileRules(&atoll.Assessment{Health: c.rules}).JudgeObject(newDatabase(), c.byKind, ObjectState{}, nil)
		if c.want.Message == "" && got.Health == atoll.Unknown {
			if got.Message == "" || len(got.Message) > maxMessage {
				t.Errorf("%s: message %q", name, got.Message)
			}
			got.Message = ""
		}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestCompletionByARule(t *testing.T) {
	healthy, degraded := Verdict{Health: atoll.Healthy}, Verdict{Health: atoll.Degraded, Reason: "Broken"}
	notDone := Verdict{Health: atoll.Progressing, Reason: atoll.ReasonNotCompleted, Message: "it has not run to completion: object.spec.public is false"}
	for name, c := range map[string]struct {
		expression   string
		byKind, want Verdict
	}{
		"done":             {"object.status.phase == 'Running'", healthy, Verdict{Health: atoll.Healthy, Finished: true}},
		"done, and failed": {"object.status.phase == 'Running'", degraded, Verdict{Health: atoll.Degraded, Reason: "Broken", Finished: true}},
		"not done":         {"object.spec.public", healthy, notDone},
		"failed before":    {"object.spec.public", degraded, degraded},
		"not observed":     {"true", Verdict{Health: atoll.Progressing, Reason: atoll.ReasonNotObserved}, Verdict{Health: atoll.Progressing, Reason: atoll.ReasonNotObserved, CompletionUnknown: true}},
	} {
		rules, object := CompileRules(&atoll.Assessment{Completion: c.expression}), newDatabase()
		done, err := rules.HasCompleted(object)
		c.byKind.Finished = done
		if got := rules.JudgeObject(object, c.byKind, ObjectState{}, err); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	rules := CompileRules(&atoll.Assessment{Completion: "object.absent"})
	_, err := rules.HasCompleted(newDatabase())
	if got := rules.JudgeObject(newDatabase(), healthy, ObjectState{}, err); err == nil || got.Health != atoll.Unknown || !got.CompletionUnknown || got.Finished {
		t.Errorf("it cannot be evaluated: %+v, %v", got, err)
	}
}

// An object that is being deleted or not observed is Progressing before any rule, also where an interpreter gives another
// reason. A completion that fails hides no Degraded.
func TestTheStateOfAnObjectComesBeforeRules(t *testing.T) {
	interpreted, degraded := Verdict{Health: atoll.Healthy, Reason: "Interpreted", Finished: true}, Verdict{Health: atoll.Degraded, Reason: "Broken"}
	rules := CompileRules(&atoll.Assessment{Health: []v1alpha1.HealthRule{{Expression: "true"}}, Completion: "true"})
	notObserved := Verdict{Health: atoll.Progressing, Reason: atoll.ReasonNotObserved, Message: "the controller has not observed the latest generation", CompletionUnknown: true}
	if got := rules.JudgeObject(newDatabase(), interpreted, ObjectState{Outdated: true}, nil); got != notObserved {
		t.Errorf("not observed: %+v", got)
	}
	if got := rules.JudgeObject(newDatabase(), interpreted, ObjectState{Deleting: true}, nil); got.Health != atoll.Progressing || got.Reason != atoll.ReasonTerminating || got.Finished {
		t.Errorf("being deleted: %+v", got)
	}
	completion := CompileRules(&atoll.Assessment{Completion: "object.absent"})
	_, err := completion.HasCompleted(newDatabase())
	if got := completion.JudgeObject(newDatabase(), degraded, ObjectState{}, err); got.Health != atoll.Degraded || got.Reason != "Broken" || !got.CompletionUnknown || got.Finished {
		t.Errorf("a completion that fails: %+v", got)
	}
}

// No rule states nothing.
func TestNoRules(t *testing.T) {
	rules := CompileRules(&atoll.Assessment{})
	byKind := Verdict{Health: atoll.Degraded, Finished: true}
	if done, err := rules.HasCompleted(newDatabase()); rules != nil || rules.ID() != "" || done || err != nil || rules.StatesCompletion() || rules.ReadFeedback(newDatabase()) != nil || rules.JudgeObject(newDatabase(), byKind, ObjectState{Deleting: true, Outdated: true}, errors.New("x")) != byKind {
		t.Error("an empty assessment says something")
	}
}

func TestPathsThatMultiplyAreRefused(t *testing.T) {
	for path, want := range map[string]string{
		".status.phase": "", "$.status.phase": "", "{.a}{.b}": "it is not one path", "{}": "it names no field", "..a": "Recursive", ".a['b','c']": "Union", "{range .a[*]}{.b}{end}": "it is not one path",
		"{range .a[*]}": "Identifier", "plain {.a}": "unrecognized", `.a[?(@..b=="c")]`: "Recursive", `.a[?(@.b[0,1]=="c")]`: "Union", "{.a": "unclosed action", ".a[0:2]": "", ".a[*].b": "", `.a[?(@.b)].c`: "",
	} {
		_, err := compilePath(path)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// A path is checked for its length before it is parsed: the parser's stack grows with it.
func TestALongPathIsNotParsed(t *testing.T) {
	for length, want := range map[int]string{atoll.MaxPath: "", atoll.MaxPath + 1: "is 513 bytes long, and at most 512 are read", 4 << 20: "is 4194304 bytes long, and at most 512 are read"} {
		if _, err := compilePath(strings.Repeat(".a", length/2) + strings.Repeat("a", length%2)); want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%d bytes: %v", length, err)
		}
	}
}

// Each rule that is refused is named by its path.
func TestRulesThatAreRefused(t *testing.T) {
	path := field.NewPath("rules")
	rules := []v1alpha1.ItemRule{
		{ResourceSelectors: []v1alpha1.ResourceSelector{{APIVersion: "v1", Kind: "Secret"}}, Removal: "Orphan"},
		{Feedback: []v1alpha1.FeedbackRule{{JSONPath: ".a"}, {JSONPath: "..a"}}, Health: []v1alpha1.HealthRule{{Expression: "object.a"}, {Expression: "'a'", Reason: "Failed"}}},
		{Completion: &v1alpha1.CompletionRule{Expression: "object.name.matches('a')"}, ResourceSelectors: []v1alpha1.ResourceSelector{{APIVersion: "v1", Kind: "ConfigMap"}, {APIVersion: "*", Kind: "Secret"}}},
	}
	ttl := int32(60)
	finished := []v1alpha1.ItemRule{
		{TTLSecondsAfterFinished: &ttl},
		{TTLSecondsAfterFinished: &ttl, ResourceSelectors: []v1alpha1.ResourceSelector{{APIVersion: "batch/v1", Kind: "Job"}, {APIVersion: "*", Kind: "*"}, {APIVersion: "apps/v1", Kind: "Deployment"}}},
	}
	errs := CheckItemRules(finished, path)
	if len(errs) != 1 || errs[0].Field != "rules[1].ttlSecondsAfterFinished" || !strings.Contains(errs[0].Detail, "a Deployment never runs to completion") {
		t.Errorf("refused are %v", errs)
	}
	finished = append(finished, v1alpha1.ItemRule{Completion: &v1alpha1.CompletionRule{Expression: "true"}})
	if errs = CheckItemRules(finished, path); len(errs) > 0 {
		t.Errorf("with a rule of completion: %v", errs)
	}
	var got []string
	for _, err := range CheckItemRules(rules, path) {
		got = append(got, err.Field)
	}
	want := []string{"rules[1].feedback[1].jsonPath", "rules[1].health[1].expression", "rules[1].health[1].reason", "rules[2].completion.expression", "rules[2].resourceSelectors[1]"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("refused are %q, want %q", got, want)
	}
}

// Equal assessments share their rules, and equal expressions their conditions: 400 objects under one rule took 250 MB.
// Rules that nothing uses are forgotten.
func TestWhatIsCompiledIsShared(t *testing.T) {
	newAssessment := func(feedback string) *atoll.Assessment {
		return &atoll.Assessment{Feedback: []v1alpha1.FeedbackRule{{Name: feedback, JSONPath: ".a"}}, Health: []v1alpha1.HealthRule{{Expression: "object.shared == 1"}}, Completion: "object.shared == 1"}
	}
	one, again, other := CompileRules(newAssessment("a")), CompileRules(newAssessment("a")), CompileRules(newAssessment("b"))
	if one != again || one == other || one.completion != other.completion || one.health[0].condition != other.completion {
		t.Error("equal rules or conditions are compiled twice")
	}
	id := one.ID()
	runtime.KeepAlive([]*Rules{one, again, other}) // and nothing uses them afterwards
	testwait.UntilTrue(t, "the rules are forgotten", func() bool {
		runtime.GC()
		sharedRules.mu.Lock()
		defer sharedRules.mu.Unlock()
		_, held := sharedRules.byKey[id]
		return !held
	})
}

// All expressions of a policy have a bound together, where equal ones count once. Nothing is compiled beyond it.
func TestTheExpressionsOfAPolicyAreBounded(t *testing.T) {
	rules := func(texts ...string) (out []v1alpha1.ItemRule) {
		for _, text := range texts {
			out = append(out, v1alpha1.ItemRule{Health: []v1alpha1.HealthRule{{Expression: text}}, Completion: &v1alpha1.CompletionRule{Expression: text}})
		}
		return out
	}
	var texts []string
	for i := range maxExpressionBytes / 1024 {
		texts = append(texts, fmt.Sprintf("%-1024s", fmt.Sprintf("object.a == %d", i)))
	}
	at := field.NewPath("rules")
	if errs := CheckItemRules(rules(append(texts, texts[0])...), at); len(errs) > 0 {
		t.Errorf("expressions of the largest length: %v", errs)
	}
	if errs := CheckItemRules(rules(append(texts, "[")...), at); len(errs) != 1 || errs[0].Field != "rules" || !strings.Contains(errs[0].Detail, "have 16385 bytes together, and at most 16384 are compiled") {
		t.Errorf("one byte more: %v", errs)
	}
}

// A path that is accepted reads any object, and gives bounded text.
func FuzzFeedback(f *testing.F) {
	for _, path := range []string{".status.phase", `.status.conditions[?(@.type=="Ready")].status`, ".status.nodes[-1:].name", ".status.nodes[*]", ".spec.nodes[0]", "{.spec['cpu']}", ".a[?(@.b>1)]", "$", strings.Repeat("[?(@.a", 4096)} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		for _, kind := range []v1alpha1.FeedbackType{v1alpha1.FeedbackJSON, v1alpha1.FeedbackQuantity, v1alpha1.FeedbackString} {
			object := newDatabase()
			for _, v := range CompileRules(&atoll.Assessment{Feedback: []v1alpha1.FeedbackRule{{Name: "n", JSONPath: path, Type: kind}}}).ReadFeedback(object) {
				if len(v.Value) > atoll.MaxFeedbackJSON || len(v.Problem) > atoll.MaxFeedbackProblem || v.Value != "" && v.Problem != "" {
					t.Errorf("%q: %+v", path, v)
				}
			}
			if !reflect.DeepEqual(object, newDatabase()) {
				t.Errorf("%q changed the object", path)
			}
		}
	})
}
