package session

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

func upsertFrame(bundle, manifest string) *pb.FromHub {
	return &pb.FromHub{Frame: &pb.FromHub_Upsert{Upsert: &pb.Upsert{Bundle: bundle, Generation: 1, Manifest: []byte(manifest)}}}
}

// assessedManifest returns a manifest of an item with an assessment.
func assessedManifest(assessment string) string {
	return `{"items":[{"key":"/ConfigMap/shop/a","apiVersion":"v1","hash":"h","object":{"a":1},"assessment":` + assessment + `}]}`
}

// expressionsOf returns a manifest with as many different expressions of 2 KiB, each of them twice.
func expressionsOf(n int) string {
	var items []string
	for i := range 2 * n {
		items = append(items, fmt.Sprintf(`{"key":"/ConfigMap/shop/a%d","apiVersion":"v1","hash":"h","object":{"a":1},"assessment":{"completion":"%2048d"}}`, i, i%n))
	}
	return `{"items":[` + strings.Join(items, ",") + `]}`
}

// longText returns a text of n bytes.
func longText(n int) string { return strings.Repeat("a", n) }

// repeatList returns the element n times, with commas.
func repeatList(element string, n int) string { return strings.Repeat(element+",", n-1) + element }

// A manifest that no hub sends is refused as a whole, and nothing of it is stored.
func TestMalformedManifestsAreRefused(t *testing.T) {
	const uid = "0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f"
	item := func(key, apiVersion string) string {
		return `{"items":[{"key":"` + key + `","apiVersion":"` + apiVersion + `","hash":"h","object":{"a":1}}]}`
	}
	for what, c := range map[string]struct {
		bundle, manifest string
		good             bool
	}{
		"a core kind":                           {uid, item("/ConfigMap/shop/a", "v1"), true},
		"a kind of a group":                     {uid, item("apps/Deployment/shop/a", "apps/v1"), true},
		"a name with colons, in no namespace":   {uid, item("rbac.authorization.k8s.io/ClusterRole//system:a", "rbac.authorization.k8s.io/v1"), true},
		"no version":                            {uid, item("/ConfigMap/shop/a", ""), true},
		"a ServiceAccount":                      {uid, `{"items":[{"key":"/ConfigMap/shop/a","apiVersion":"v1","hash":"h","object":{"a":1},"serviceAccount":"shop/deployer"}]}`, true},
		"a ServiceAccount without a namespace":  {uid, `{"items":[{"key":"/ConfigMap/shop/a","apiVersion":"v1","hash":"h","object":{"a":1},"serviceAccount":"deployer"}]}`, false},
		"a user that is no ServiceAccount":      {uid, `{"items":[{"key":"/ConfigMap/shop/a","apiVersion":"v1","hash":"h","object":{"a":1},"serviceAccount":"shop/a:b"}]}`, false},
		"the ServiceAccount of a namespace":     {uid, `{"namespaces":{"shop":{"serviceAccount":"shop/deployer"}}}`, true},
		"no ServiceAccount of a namespace":      {uid, `{"namespaces":{"shop":{"serviceAccount":"a/b/c"}}}`, false},
		"the lowest wave":                       {uid, `{"items":[{"key":"/ConfigMap/shop/a","apiVersion":"v1","hash":"h","object":{"a":1},"wave":-1000000}]}`, true},
		"a wave over all bounds":                {uid, `{"items":[{"key":"/ConfigMap/shop/a","apiVersion":"v1","hash":"h","object":{"a":1},"wave":1000001}]}`, false},
		"a hook":                                {uid, `{"hookRun":"0123456789abcdef0123456789abcdef","items":[{"key":"/ConfigMap/shop/a","apiVersion":"v1","hash":"h","object":{"a":1},"hook":{"events":["PreSync"]},"hooked":true}]}`, true},
		"a hook of no content":                  {uid, `{"items":[{"key":"/ConfigMap/shop/a","apiVersion":"v1","hash":"h","object":{"a":1},"hook":{"events":["PreSync"]}}]}`, false},
		"a content of no hook":                  {uid, `{"hookRun":"0123456789abcdef0123456789abcdef"}`, false},
		"a hook of another event":               {uid, `{"hookRun":"0123456789abcdef0123456789abcdef","items":[{"key":"/ConfigMap/shop/a","apiVersion":"v1","hash":"h","object":{"a":1},"hook":{"events":["Never"]}}]}`, false},
		"more hooks than agents run":            {uid, `{"hookRun":"0123456789abcdef0123456789abcdef","items":[` + strings.TrimSuffix(strings.Repeat(`{"key":"/ConfigMap/shop/a","apiVersion":"v1","hash":"h","object":{"a":1},"hook":{}},`, atoll.MaxHooks+1), ",") + `]}`, false},
		"an order about hooks of a removal":     {uid, `{"remove":true,"removalHooks":"Retry-2"}`, true},
		"an unknown order about hooks":          {uid, `{"remove":true,"removalHooks":"Never"}`, false},
		"an order about hooks of no removal":    {uid, `{"removalHooks":"Skip"}`, false},
		"no items":                              {uid, `{"content":"c","remove":true}`, true},
		"a group of another kind's":             {uid, item("x/Secret/shop/a", "v1"), false},
		"a core key of a kind of a group":       {uid, item("/ClusterRole//a", "rbac.authorization.k8s.io/v1"), false},
		"a group that is a part of another one": {uid, item("apps/Deployment/shop/a", "apps.example/v1"), false},
		"a name that is a path":                 {uid, item("/ConfigMap/shop/../../kube-system/configmaps/a", "v1"), false},
		"a namespace that is a path":            {uid, item("/ConfigMap/../a", "v1"), false},
		"a name of an encoded path":             {uid, item("/ConfigMap/shop/%2e%2e", "v1"), false},
		"a long name":                           {uid, item("/ConfigMap/shop/"+strings.Repeat("a", 254), "v1"), false},
		"a group that is a path":                {uid, item("../ConfigMap/shop/a", "../v1"), false},
		"an approval":                           {uid, `{"items":[{"key":"/ConfigMap/shop/a","hash":"h","object":{"a":1},"observe":"Approve","approval":"0123456789abcdef"}]}`, true},
		"an approval of another form":           {uid, `{"items":[{"key":"/ConfigMap/shop/a","hash":"h","object":{"a":1},"observe":"Approve","approval":"yes"}]}`, false},
		"rules of the largest form":             {uid, assessedManifest(`{"feedback":[` + repeatList(`{"name":"`+longText(63)+`","jsonPath":"`+longText(512)+`","type":"String"}`, 16) + `],"health":[` + repeatList(`{"expression":"`+longText(2048)+`","message":"`+strings.Repeat("é", 256)+`","reason":"`+longText(63)+`"}`, 8) + `],"completion":"` + longText(2048) + `"}`), true},
		"a long path":                           {uid, assessedManifest(`{"feedback":[{"name":"a","jsonPath":"` + longText(513) + `","type":"String"}]}`), false},
		"no path":                               {uid, assessedManifest(`{"feedback":[{"name":"a","type":"String"}]}`), false},
		"a long name of feedback":               {uid, assessedManifest(`{"feedback":[{"name":"` + longText(64) + `","jsonPath":".a","type":"String"}]}`), false},
		"many rules of feedback":                {uid, assessedManifest(`{"feedback":[` + repeatList(`{"name":"a","jsonPath":".a","type":"String"}`, 17) + `]}`), false},
		"many rules of health":                  {uid, assessedManifest(`{"health":[` + repeatList(`{"expression":"true"}`, 9) + `]}`), false},
		"a long expression":                     {uid, assessedManifest(`{"health":[{"expression":"` + longText(2049) + `"}]}`), false},
		"no expression":                         {uid, assessedManifest(`{"health":[{}]}`), false},
		"a long message":                        {uid, assessedManifest(`{"health":[{"expression":"true","message":"` + longText(257) + `"}]}`), false},
		"a long reason":                         {uid, assessedManifest(`{"health":[{"expression":"true","reason":"` + longText(64) + `"}]}`), false},
		"a long completion":                     {uid, assessedManifest(`{"completion":"` + longText(2049) + `"}`), false},
		"expressions of many bytes":             {uid, expressionsOf(33), false},
		"expressions of the most bytes":         {uid, expressionsOf(32), true},
		"rules that are listed":                 {uid, `{"assessments":[{"completion":"true"}],"items":[{"key":"/ConfigMap/shop/a","apiVersion":"v1","hash":"h","object":{"a":1},"assessed":[0]}]}`, true},
		"a long expression in the list":         {uid, `{"assessments":[{"completion":"` + longText(2049) + `"}],"items":[{"key":"/ConfigMap/shop/a","apiVersion":"v1","hash":"h","object":{"a":1},"assessed":[0]}]}`, false},
		"a reference to no rules":               {uid, `{"items":[{"key":"/ConfigMap/shop/a","apiVersion":"v1","hash":"h","object":{"a":1},"assessed":[0]}]}`, false},
		"a tombstone of a path":                 {uid, `{"tombstones":[{"key":"/ConfigMap/shop/.."}]}`, false},
		"labels of a path":                      {uid, `{"namespaces":{"..":{}}}`, false},
		"a deleted namespace that is a path":    {uid, `{"deletedNamespaces":["a/b"]}`, false},
		"a bundle in capitals":                  {"UID", item("/ConfigMap/shop/a", "v1"), false},
		"a bundle that is a path":               {"../a", item("/ConfigMap/shop/a", "v1"), false},
		"a bundle that ends with a dash":        {"a-", item("/ConfigMap/shop/a", "v1"), false},
		"a long bundle":                         {strings.Repeat("a", idBytes+1), item("/ConfigMap/shop/a", "v1"), false},
		"no bundle":                             {"", item("/ConfigMap/shop/a", "v1"), false},
		"no JSON":                               {uid, `{`, false},
		"many values":                           {uid, `{"interpreters":[{"a":[` + strings.Repeat("1,", maxManifestValues) + `1]}]}`, false},
		"many items":                            {uid, `{"items":[` + strings.Repeat("{},", maxManifestElements) + `{}]}`, false},
		"many items that are null":              {uid, `{"items":[` + strings.Repeat("null,", maxManifestElements) + `null]}`, false},
		"many namespaces that are null":         {uid, `{"namespaces":{` + strings.Repeat(`"a":null,`, maxManifestElements) + `"a":null}}`, false},
		"10,000 deleted namespaces":             {uid, `{"deletedNamespaces":[` + strings.Repeat(`"a",`, 9_999) + `"a"]}`, true},
		"large objects of many values":          {uid, `{"items":[{"key":"/ConfigMap/shop/a","apiVersion":"v1","hash":"h","object":{"a":[` + strings.Repeat("1,", maxManifestValues) + `1]}}]}`, true},
	} {
		out := NewAgent(AgentOptions{}, Memory{}).HandleFrame(upsertFrame(c.bundle, c.manifest))
		if stores := len(out.Store) == 1; stores != c.good || stores == (len(out.Rejected) == 1) || len(out.Frames) > 0 {
			t.Errorf("%s: %d manifests are stored, and refused %v", what, len(out.Store), out.Rejected)
		}
	}
}

// An agent holds as many bundles as a hub lets it report. Further ones are refused, and orders for those that
// it holds are followed.
func TestBundlesOfAnAgentAreBounded(t *testing.T) {
	var m Memory
	for i := range maxHeldBundles {
		m.Held = append(m.Held, Entry{Bundle: fmt.Sprint("b", i), Generation: 1})
	}
	a := NewAgent(AgentOptions{}, m)
	if out := a.HandleFrame(upsertFrame("further", `{}`)); len(out.Store) != 0 || len(out.Rejected) != 1 {
		t.Errorf("a further bundle: %d are stored, refused %v", len(out.Store), out.Rejected)
	}
	if out := a.HandleFrame(upsertFrame("b7", `{"content":"new"}`)); len(out.Store) != 1 || len(out.Rejected) != 0 {
		t.Errorf("a bundle that is held: %d are stored, refused %v", len(out.Store), out.Rejected)
	}
}

// The count has the containers, fields and elements down to the depth, and none within texts.
func TestCountValues(t *testing.T) {
	for text, want := range map[string]int{
		``:                          0,
		`1`:                         0,
		`{"a":1,"b":2}`:             2,
		`[{},{}]`:                   4,
		`["a,{","\",[",[]]`:         4,
		`{"a":[{"b":{"c":[1,2]}}]}`: 4,
		`[[[[[[0,0],0],0],0],0],0]`: 8,
		`}}}[[`:                     2,
	} {
		if got := countJSONValues([]byte(text), 4); got != want {
			t.Errorf("%s: %d values, want %d", text, got, want)
		}
	}
}

// Rules take memory only after their number is checked: a manifest of 8 MiB had two million of them, and took 352 MiB
// before it was refused.
func TestTheMemoryOfRulesIsBounded(t *testing.T) {
	manifest := assessedManifest(`{"health":[` + repeatList(`{}`, 2<<20) + `]}`)
	for name, manifest := range map[string]string{
		"of one item":      manifest,
		"of many items":    `{"items":[` + repeatList(`{"assessment":{"health":[`+repeatList(`{}`, 300)+`]}}`, 6000) + `]}`,
		"in the list":      `{"assessments":[` + repeatList(`{}`, 1<<20) + `]}`,
		"of a listed part": `{"assessments":[{"health":[` + repeatList(`{}`, 2<<20) + `]}]}`,
		"without an order": `{"items":[{"assessment":{"health":[` + repeatList(`{}`, 1<<20) + `],"health":[` + repeatList(`{}`, 1<<20) + `]}}]}`,
	} {
		u := &pb.Upsert{Bundle: "b", Generation: 1, Manifest: []byte(manifest)}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := decodeManifest(u)
		runtime.ReadMemStats(&after)
		if made := (after.TotalAlloc - before.TotalAlloc) >> 20; err == nil || made > 16 {
			t.Errorf("%s: %v, and %d MiB are made", name, err, made)
		}
	}
}
