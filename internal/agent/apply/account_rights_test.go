package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authorizationv1 "k8s.io/api/authorization/v1"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

const deployerAccount = "shop/deployer"

// authorizer answers SubjectAccessReviews in front of a member. It allows the listed rights, as VERB RESOURCE
// NAMESPACE/NAME, and keeps the questions.
type authorizer struct {
	http.Handler
	mu      sync.Mutex
	allowed []string
	asked   []string
	groups  []string // of the last question
	fails   int      // the code of all answers; 0: none fails
}

func (a *authorizer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "/subjectaccessreviews") {
		a.Handler.ServeHTTP(w, r)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if a.fails != 0 {
		code, reply := failRequest(a.fails, map[int]string{404: "NotFound", 503: "ServiceUnavailable"}[a.fails])
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(reply)
		return
	}
	var review authorizationv1.SubjectAccessReview
	_ = json.NewDecoder(r.Body).Decode(&review)
	of := review.Spec.ResourceAttributes
	right := of.Verb + " " + of.Resource + " " + of.Namespace + "/" + of.Name
	a.asked, a.groups = append(a.asked, right), review.Spec.Groups
	review.Status.Allowed = review.Spec.User == "system:serviceaccount:shop:deployer" && slices.Contains(a.allowed, right)
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(review)
}

// namedItem returns an item that names deployerAccount, as a hub sends it.
func namedItem(it atoll.RenderedItem) atoll.RenderedItem {
	it.ServiceAccount, it.Error = deployerAccount, atoll.UnknownServiceAccount
	return it
}

// allRights are those by which the ServiceAccount may do everything with the object of confItem.
var allRights = []string{"get configmaps shop/conf", "create configmaps shop/conf", "patch configmaps shop/conf", "delete configmaps shop/conf"}

// Each step needs exactly the rights of its writes. Without one of them nothing is written.
func TestStepsNeedTheRightsOfTheirWrites(t *testing.T) {
	tombstone := []atoll.Tombstone{{Key: confKey, UID: "t"}}
	leaving := wantedRecord(namedItem(confItem("x")))
	leaving.Claims["b1"] = ownership.Claim{State: ownership.Leaving, Template: "t", Account: deployerAccount}
	applied := wantedRecord(namedItem(confItem("x")))
	applied.Claims["b1"] = ownership.Claim{State: ownership.Wanted, Template: "t", Account: deployerAccount}
	replaced := applied
	replaced.Template = "former"
	released := leaving
	released.Adopted = true
	orphaned := atoll.Manifest{Bundle: "b1", Generation: 1, Tombstones: tombstone}
	observed := namedItem(confItem("y"))
	observed.Observe = atoll.ObserveDrift
	healthOnly := observed
	healthOnly.Observe = atoll.ObserveHealth
	const apply = "APPLY conf " + atoll.FieldManager
	for name, c := range map[string]struct {
		records  []ownership.Record
		manifest atoll.Manifest
		live     string
		verbs    []string
		writes   []string // with all rights
	}{
		"a new object":        {nil, newManifest("b1", 1, namedItem(confItem("x"))), "", []string{"get", "create", "patch"}, []string{apply}},
		"an edit":             {[]ownership.Record{applied}, newManifest("b1", 1, namedItem(confItem("y"))), liveConf("x"), []string{"get", "patch"}, []string{apply}},
		"a removal":           {[]ownership.Record{leaving}, orphaned, liveConf("x"), []string{"delete"}, []string{"DELETE conf"}},
		"a replacement":       {[]ownership.Record{replaced}, newManifest("b1", 1, namedItem(confItem("x"))), liveConf("x"), []string{"get", "create", "patch", "delete"}, []string{"DELETE conf", apply}},
		"drift is reported":   {nil, newManifest("b1", 1, observed), liveConf("x"), []string{"get", "patch"}, nil},
		"health is reported":  {nil, newManifest("b1", 1, healthOnly), liveConf("x"), []string{"get"}, nil},
		"it stays in members": {[]ownership.Record{released}, orphaned, liveConf("x"), nil, []string{"MERGE conf " + atoll.FieldManager}},
	} {
		t.Run(name, func(t *testing.T) {
			for missing := range len(c.verbs) + 1 {
				m := newMemoryMember(t)
				if c.live != "" {
					m = newMemoryMember(t, c.live)
				}
				a := &authorizer{Handler: m, allowed: slices.Clone(allRights)}
				e := newStubEngine(t, a, append([]ownership.Record{shopNamespace}, c.records...), c.manifest)
				if missing == len(c.verbs) {
					expectFailure(t, settleKey(t, e.MemberApplier, confKey), nil)
					m.expectWrites(t, c.writes...)
					asked := map[string]bool{}
					for _, right := range a.asked {
						verb, _, _ := strings.Cut(right, " ")
						asked[verb] = true
					}
					for _, verb := range c.verbs {
						if delete(asked, verb); !slices.Contains(a.asked, verb+" configmaps shop/conf") {
							t.Errorf("the right to %s was not asked for: %q", verb, a.asked)
						}
					}
					if name != "a replacement" && len(asked) > 0 {
						t.Errorf("more rights are asked for than %q: %v", c.verbs, asked)
					}
					continue
				}
				verb := c.verbs[missing]
				a.allowed = slices.DeleteFunc(a.allowed, func(right string) bool { return strings.HasPrefix(right, verb) })
				expectFailure(t, settleKey(t, e.MemberApplier, confKey), &Failure{
					Reason: atoll.ReasonServiceAccountForbidden,
					Message: "ServiceAccount shop/deployer may not " + verb + ` configmaps conf in namespace shop: grant it {apiGroups: [""], resources: [configmaps], ` +
						"verbs: [get, create, patch, delete]} there, or name another one on the hub",
				})
				m.expectWrites(t)
			}
		})
	}
}

// The member is asked about the ServiceAccount with the groups that Kubernetes gives it.
func TestTheGroupsOfAServiceAccount(t *testing.T) {
	a := &authorizer{Handler: newMemoryMember(t)}
	e := newStubEngine(t, a, []ownership.Record{shopNamespace}, newManifest("b1", 1, namedItem(confItem("x"))))
	settleKey(t, e.MemberApplier, confKey)
	if want := []string{"system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"}; !slices.Equal(a.groups, want) {
		t.Errorf("groups %q, want %q", a.groups, want)
	}
}

// An object without a ServiceAccount costs no question.
func TestWithoutAServiceAccountNothingIsAsked(t *testing.T) {
	m := newMemoryMember(t)
	a := &authorizer{Handler: m}
	e := newStubEngine(t, a, []ownership.Record{shopNamespace}, newManifest("b1", 1, confItem("x")))
	expectFailure(t, settleKey(t, e.MemberApplier, confKey), nil)
	m.expectWrites(t, "APPLY conf "+atoll.FieldManager)
	if len(a.asked) > 0 {
		t.Errorf("asked %q", a.asked)
	}
}

// Three hundred objects cost three questions each. A refusal that is tried again within the age of the answers costs none.
func TestTheQuestionsOfManyObjects(t *testing.T) {
	const objects = 300
	var items []atoll.RenderedItem
	a := &authorizer{Handler: newMemoryMember(t)}
	for i := range objects {
		it := namedItem(confItem("x"))
		it.Key.Name = fmt.Sprint("conf", i)
		items = append(items, it)
		for _, verb := range []string{"get", "create", "patch"} {
			a.allowed = append(a.allowed, verb+" configmaps shop/"+it.Key.Name)
		}
	}
	denied := namedItem(confItem("x"))
	e := newStubEngine(t, a, []ownership.Record{shopNamespace}, newManifest("b1", 1, append(items, denied)...))
	for i := range items {
		expectFailure(t, settleKey(t, e.MemberApplier, items[i].Key), nil)
	}
	if len(a.asked) != 3*objects {
		t.Errorf("%d questions for %d objects", len(a.asked), objects)
	}
	for range 20 {
		if f := settleKey(t, e.MemberApplier, denied.Key); f == nil || f.Reason != atoll.ReasonServiceAccountForbidden || f.First != 0 || f.Most != 0 {
			t.Fatalf("%+v: it is not tried again at the pace of other failures", f)
		}
	}
	if len(a.asked) != 3*objects+1 {
		t.Errorf("%d questions after 20 tries of one that is denied", len(a.asked)-3*objects)
	}
}

// Nothing is written while the member cannot be asked.
func TestAMemberThatDoesNotAnswerAboutRights(t *testing.T) {
	for code, want := range map[int]*Failure{
		404: {Reason: atoll.ReasonForbidden, Message: "the member does not serve subjectaccessreviews, so the rights of ServiceAccount shop/deployer cannot be checked"},
		503: {Reason: atoll.ReasonMemberUnavailable, Transport: true, Most: 10 * time.Second},
	} {
		m := newMemoryMember(t)
		a := &authorizer{Handler: m, fails: code, allowed: allRights}
		e := newStubEngine(t, a, []ownership.Record{shopNamespace}, newManifest("b1", 1, namedItem(confItem("x"))))
		got := settleKey(t, e.MemberApplier, confKey)
		if got != nil && code == 503 {
			if !strings.HasPrefix(got.Message, "the rights of ServiceAccount shop/deployer cannot be checked:") {
				t.Errorf("the message is %q", got.Message)
			}
			got.Message = ""
		}
		expectFailure(t, got, want)
		m.expectWrites(t)
		a.fails = 0
		expectFailure(t, settleKey(t, e.MemberApplier, confKey), nil) // no error is remembered
		m.expectWrites(t, "APPLY conf "+atoll.FieldManager)
	}
}

// A namespace is made for objects with the right of one of their ServiceAccounts, and by the agent alone where an
// object in it names none.
func TestANamespaceIsMadeWithTheRightOfAServiceAccount(t *testing.T) {
	key := atoll.ItemKey{Kind: "ConfigMap", Namespace: "blog", Name: "conf"}
	inBlog := func(name, account string) atoll.RenderedItem {
		it := confItem("x")
		it.Key = key
		it.Key.Name, it.ServiceAccount = name, account
		if account != "" {
			it.Error = atoll.UnknownServiceAccount
		}
		return it
	}
	rights := []string{"get namespaces /blog", "create namespaces /blog", "patch namespaces /blog"}
	for name, c := range map[string]struct {
		items []atoll.RenderedItem
		meta  atoll.NamespaceMeta
		may   []string
		made  bool
		by    string
	}{
		"it may":                      {items: []atoll.RenderedItem{inBlog("a", deployerAccount)}, may: rights, made: true, by: deployerAccount},
		"it may not create":           {items: []atoll.RenderedItem{inBlog("a", deployerAccount)}, may: rights[:1]},
		"one of two may":              {items: []atoll.RenderedItem{inBlog("a", "a/first"), inBlog("b", deployerAccount)}, may: rights, made: true, by: deployerAccount},
		"an object names none":        {items: []atoll.RenderedItem{inBlog("a", deployerAccount), inBlog("b", "")}, made: true},
		"without objects, it may":     {meta: atoll.NamespaceMeta{ServiceAccount: deployerAccount}, may: rights, made: true, by: deployerAccount},
		"without objects, it may not": {meta: atoll.NamespaceMeta{ServiceAccount: deployerAccount}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemoryMember(t)
			a := &authorizer{Handler: m, allowed: c.may}
			manifest := newManifest("b1", 1, c.items...)
			manifest.Namespaces = map[string]atoll.NamespaceMeta{"blog": c.meta}
			e := newStubEngine(t, a, nil, manifest)
			e.mu.Lock()
			e.intendNamespace("blog")
			e.mu.Unlock()
			failure := e.ensureNamespace(t.Context(), "blog")
			if !c.made {
				m.expectWrites(t)
				if failure == nil || failure.Reason != atoll.ReasonServiceAccountForbidden || !strings.HasPrefix(failure.Message, "ServiceAccount shop/deployer may not ") ||
					!strings.Contains(failure.Message, " namespaces blog in this cluster: grant it ") {
					t.Errorf("it fails with %+v", failure)
				}
				return
			}
			expectFailure(t, failure, nil)
			m.expectWrites(t, "APPLY blog "+atoll.FieldManager)
			if got := e.recordOf(atoll.NamespaceKey("blog")).Account; got != c.by {
				t.Errorf("it is made by %q, want %q", got, c.by)
			}
		})
	}
}

// The objects of a namespace that may not be created name the namespace, because no right can be granted in it.
func TestTheMissingNamespaceIsTheReason(t *testing.T) {
	m := newMemoryMember(t)
	it := namedItem(confItem("x"))
	it.Key.Namespace = "blog"
	e := newStubEngine(t, &authorizer{Handler: m}, nil, newManifest("b1", 1, it))
	e.mu.Lock()
	e.intendNamespace("blog")
	e.mu.Unlock()
	e.recordNamespaceFailure(t.Context(), "blog", e.ensureNamespace(t.Context(), "blog"))
	if got := settleKey(t, e.MemberApplier, it.Key); got == nil || got.Reason != atoll.ReasonServiceAccountForbidden ||
		!strings.HasPrefix(got.Message, "namespace blog is not there, and ServiceAccount shop/deployer may not get namespaces blog in this cluster") {
		t.Errorf("it fails with %+v", got)
	}
}

// A role or a binding needs the right to grant it, because the member's API checks only the agent's.
func TestGrantsNeedTheRightToGrant(t *testing.T) {
	binding := func(ref string) string { return `{"roleRef":` + ref + `}` }
	const group = "rbac.authorization.k8s.io"
	for name, c := range map[string]struct {
		group, kind, namespace, object string
		want                           string // VERB RESOURCE NAMESPACE/NAME
		refused                        bool
	}{
		"a Role":                           {group, "Role", "shop", "{}", "escalate roles shop/x", false},
		"a ClusterRole":                    {group, "ClusterRole", "", "{}", "escalate clusterroles /x", false},
		"a RoleBinding to a Role":          {group, "RoleBinding", "shop", binding(`{"kind":"Role","name":"edit"}`), "bind roles shop/edit", false},
		"a RoleBinding to a ClusterRole":   {group, "RoleBinding", "shop", binding(`{"kind":"ClusterRole","name":"edit"}`), "bind clusterroles shop/edit", false},
		"a ClusterRoleBinding":             {group, "ClusterRoleBinding", "", binding(`{"kind":"ClusterRole","name":"cluster-admin"}`), "bind clusterroles /cluster-admin", false},
		"a binding to another kind":        {group, "RoleBinding", "shop", binding(`{"kind":"Secret","name":"edit"}`), "", true},
		"a binding without a name":         {group, "RoleBinding", "shop", binding(`{"kind":"Role"}`), "", true},
		"a binding without a roleRef":      {group, "ClusterRoleBinding", "", "{}", "", true},
		"a binding that is no object":      {group, "ClusterRoleBinding", "", "[]", "", true},
		"a binding of another type":        {group, "RoleBinding", "shop", binding(`{"kind":"Role","name":7}`), "", true},
		"another kind":                     {"", "ConfigMap", "shop", "{}", "", false},
		"another group's Role":             {"example.io", "Role", "shop", "{}", "", false},
		"another group's RoleBinding":      {"example.io", "RoleBinding", "shop", "{}", "", false},
		"a kind of the group without rule": {group, "Other", "shop", "{}", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			p := pendingWork{Step: ownership.Step{
				Verb: ownership.Apply, Key: atoll.ItemKey{Group: c.group, Kind: c.kind, Namespace: c.namespace, Name: "x"},
				Item: &atoll.RenderedItem{Object: []byte(c.object)}, Account: deployerAccount,
			}}
			got, failure := grantingAccess(p)
			if (failure != nil) != c.refused || (got == nil) != (c.want == "") {
				t.Fatalf("%+v, %+v", got, failure)
			}
			if got == nil {
				return
			}
			if text := got.Verb + " " + got.Resource + " " + got.Namespace + "/" + got.Name; text != c.want || got.Group != group || got.Account != deployerAccount {
				t.Errorf("%+v, want %s", got, c.want)
			}
			p.Verb, p.Item = ownership.Delete, nil
			if got, failure := grantingAccess(p); got != nil || failure != nil {
				t.Errorf("its removal needs %+v, %+v", got, failure)
			}
		})
	}
}

// With names of any length, the refusal fits into a report, with the right that is missing.
func TestARefusalFitsIntoAReport(t *testing.T) {
	long := strings.Repeat("n", 63)
	f := missingAccessFailure(member.Access{Account: long + "/" + strings.Repeat("a", 253), Verb: "create", Group: "x.example.io", Resource: "widgets", Namespace: long, Name: strings.Repeat("o", 253)})
	if len(f.Message) > maxText {
		t.Errorf("%d bytes: %s", len(f.Message), f.Message)
	}
	grant := missingAccessFailure(member.Access{Account: deployerAccount, Verb: "bind", Group: rbacGroup, Resource: "clusterroles", Name: "cluster-admin"})
	if want := "ServiceAccount shop/deployer may not bind clusterroles.rbac.authorization.k8s.io cluster-admin in this cluster: grant it " +
		"{apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], verbs: [bind]} there, or name another one on the hub"; grant.Message != want {
		t.Errorf("%s, want %s", grant.Message, want)
	}
}

// Answers count for a short time, errors do not count, and the number of answers is bounded.
func TestAnswersAboutRightsCountForAShortTime(t *testing.T) {
	asked, fails := 0, false
	c := &accessCache{metrics: NewMetrics(prometheus.NewRegistry()), age: time.Hour, answers: map[member.Access]accessAnswer{}}
	c.review = func(_ context.Context, a member.Access) (bool, error) {
		if asked++; fails {
			return true, errors.New("busy")
		}
		return a.Verb == "get", nil
	}
	review := func(verb string, want bool, wantAsked int) {
		t.Helper()
		if got, _ := c.reviewAccess(t.Context(), member.Access{Verb: verb}); got != want || asked != wantAsked {
			t.Errorf("%s: %t after %d questions, want %t after %d", verb, got, asked, want, wantAsked)
		}
	}
	review("get", true, 1)
	review("get", true, 1)
	review("patch", false, 2)
	review("patch", false, 2)
	c.age = 0
	review("get", true, 3)
	fails = true
	review("create", false, 4)
	fails, c.age = false, time.Hour
	review("create", false, 5)
	for answer, want := range map[string]float64{"allowed": 2, "denied": 2, "error": 1, "cached": 2} {
		if got := testutil.ToFloat64(c.metrics.reviews.WithLabelValues(answer)); got != want {
			t.Errorf("%s: %v, want %v", answer, got, want)
		}
	}
	for i := range 2*maxAccessAnswers + 1 {
		if _, err := c.reviewAccess(t.Context(), member.Access{Verb: "get", Name: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
		if len(c.answers) > maxAccessAnswers {
			t.Fatalf("%d answers are kept", len(c.answers))
		}
	}
}

// Keys that are worked on at the same time share the answers.
func TestAnswersAreSharedByGoroutines(t *testing.T) {
	a := &authorizer{Handler: newMemoryMember(t), allowed: allRights}
	e := newStubEngine(t, a, nil)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			right := member.Access{Account: deployerAccount, Verb: []string{"get", "patch"}[i%2], Resource: "configmaps", Namespace: "shop", Name: "conf"}
			if allowed, err := e.access.reviewAccess(t.Context(), right); !allowed || err != nil {
				t.Errorf("%t, %v", allowed, err)
			}
		})
	}
	all.Wait()
}
