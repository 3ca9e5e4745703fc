package admission

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"atoll.dev/atoll/api/v1alpha1"
)

// sourceRequest returns a write of an object of Atoll's in the namespace shop by ann.
func sourceRequest(t *testing.T, kind, resource, now, before string) admission.Attributes {
	t.Helper()
	text := func(spec string) runtime.Object {
		return unstructuredOf(t, "{apiVersion: atoll.dev/v1alpha1, kind: "+kind+", metadata: {name: web, namespace: shop}, spec: "+spec+"}")
	}
	op, old := admission.Create, runtime.Object(nil)
	if before != "" {
		op, old = admission.Update, text(before)
	}
	gvk := schema.GroupVersionKind{Group: "atoll.dev", Version: "v1alpha1", Kind: kind}
	return admission.NewAttributesRecord(text(now), old, gvk, "shop", "web", gvk.GroupVersion().WithResource(resource), "", op, nil, false, &user.DefaultInfo{Name: "ann"})
}

func TestRepositoriesThatAreRefused(t *testing.T) {
	const (
		withSecret = "{git: {url: 'https://h/a', secretRef: {name: token}}}"
		reported   = "{git: {url: 'https://h/a/b'}, commitStatus: {server: GitHub, secretRef: {name: bot}}}"
	)
	for name, c := range map[string]struct {
		now, before string
		rights      []string
		want        string
	}{
		"https":                 {"{git: {url: 'https://h/a.git'}}", "", nil, ""},
		"http":                  {"{git: {url: 'http://h:3000/a.git'}}", "", nil, ""},
		"a file":                {"{git: {url: 'file:///etc'}}", "", nil, "spec.git.url"},
		"a path":                {"{git: {url: /etc}}", "", nil, "spec.git.url"},
		"a helper":              {"{git: {url: 'ext::sh -c true'}}", "", nil, "spec.git.url"},
		"ssh":                   {"{git: {url: 'ssh://git@h:2222/a.git', secretRef: {name: token}}}", "", []string{"ann get secrets shop/token"}, ""},
		"ssh without a user":    {"{git: {url: 'ssh://h/~ann/a', secretRef: {name: token}}}", "", []string{"ann get secrets shop/token"}, ""},
		"ssh without a right":   {"{git: {url: 'ssh://git@h/a', secretRef: {name: token}}}", "", nil, `spec.git.secretRef: the right to get the Secret "token" is needed`},
		"ssh without a Secret":  {"{git: {url: 'ssh://git@h/a'}}", "", nil, "spec.git.secretRef: Required value: name a Secret with identity"},
		"ssh with a CA":         {"{git: {url: 'ssh://git@h/a', secretRef: {name: token}, caBundle: pem}}", "", nil, "spec.git.caBundle: Forbidden"},
		"ssh with a password":   {"{git: {url: 'ssh://git:hush@h/a', secretRef: {name: token}}}", "", nil, "may not have a password"},
		"ssh with no name":      {"{git: {url: 'ssh://@h/a', secretRef: {name: token}}}", "", nil, "empty user"},
		"ssh to no path":        {"{git: {url: 'ssh://git@h/', secretRef: {name: token}}}", "", nil, "names no repository"},
		"ssh with a line break": {"{git: {url: 'ssh://git@h/a%0ab', secretRef: {name: token}}}", "", nil, "control character"},
		"ssh with a query":      {"{git: {url: 'ssh://git@h/a?b', secretRef: {name: token}}}", "", nil, "query"},
		"the short form of ssh": {"{git: {url: 'git@h:team/a.git'}}", "", nil, "write ssh://git@h/team/a.git"},
		"ssh for charts":        {"{helm: {url: 'ssh://git@h/a', secretRef: {name: token}}}", "", nil, "must begin with https:// or oci://"},
		"a signature":           {"{git: {url: 'https://h/a'}, verify: {mode: Commit, secretRef: {name: keys}}}", "", []string{"ann get secrets shop/keys"}, ""},
		"keys of others":        {"{git: {url: 'https://h/a'}, verify: {mode: Tag, secretRef: {name: keys}}}", "{git: {url: 'https://h/a'}}", nil, `spec.verify.secretRef: the right to get the Secret "keys" is needed`},
		"signatures that stay":  {"{suspend: true, git: {url: 'https://h/a'}, verify: {mode: Tag, secretRef: {name: keys}}}", "{git: {url: 'https://h/a'}, verify: {mode: Tag, secretRef: {name: keys}}}", nil, ""},
		"signed charts":         {"{helm: {url: 'oci://h/a'}, verify: {mode: Artifact, secretRef: {name: keys}}}", "", []string{"ann get secrets shop/keys"}, ""},
		"provenance by https":   {"{helm: {url: 'https://h/a'}, verify: {mode: Provenance, secretRef: {name: keys}}}", "", []string{"ann get secrets shop/keys"}, ""},
		"provenance by oci":     {"{helm: {url: 'oci://h/a'}, verify: {mode: Provenance, secretRef: {name: keys}}}", "", []string{"ann get secrets shop/keys"}, ""},
		"signed artifacts":      {"{oci: {url: 'oci://h/a'}, verify: {mode: Artifact, secretRef: {name: keys}}}", "", []string{"ann get secrets shop/keys"}, ""},
		"an artifact's keys":    {"{oci: {url: 'oci://h/a'}, verify: {mode: Artifact, secretRef: {name: keys}}}", "", nil, `spec.verify.secretRef: the right to get the Secret "keys" is needed`},
		"artifacts of an index": {"{helm: {url: 'https://h/a'}, verify: {mode: Artifact, secretRef: {name: keys}}}", "", []string{"ann get secrets shop/keys"}, `spec.verify.mode: Unsupported value: "Artifact": supported values: "Provenance"`},
		"commits of charts":     {"{helm: {url: 'oci://h/a'}, verify: {mode: Commit, secretRef: {name: keys}}}", "", []string{"ann get secrets shop/keys"}, `supported values: "Artifact", "Provenance"`},
		"commits of artifacts":  {"{oci: {url: 'oci://h/a'}, verify: {mode: Commit, secretRef: {name: keys}}}", "", []string{"ann get secrets shop/keys"}, `supported values: "Artifact"`},
		"artifacts of git":      {"{git: {url: 'https://h/a'}, verify: {mode: Artifact, secretRef: {name: keys}}}", "", []string{"ann get secrets shop/keys"}, `supported values: "Commit", "Tag", "TagAndCommit"`},
		"a token host":          {"{oci: {url: 'oci://h/a', secretRef: {name: token}, tokenHost: 'auth.h:8443'}}", "", []string{"ann get secrets shop/token"}, ""},
		"token host of charts":  {"{helm: {url: 'oci://h/a', secretRef: {name: token}, tokenHost: auth.h}}", "", []string{"ann get secrets shop/token"}, ""},
		"another token host":    {"{oci: {url: 'oci://h/a', secretRef: {name: token}, tokenHost: evil}}", "{oci: {url: 'oci://h/a', secretRef: {name: token}, tokenHost: auth.h}}", nil, `spec.oci.secretRef: the right to get the Secret "token" is needed`},
		"a token host as URL":   {"{oci: {url: 'oci://h/a', secretRef: {name: token}, tokenHost: 'https://auth.h'}}", "", []string{"ann get secrets shop/token"}, "spec.oci.tokenHost: Invalid value: must be HOST"},
		"a user at the host":    {"{oci: {url: 'oci://h/a', secretRef: {name: token}, tokenHost: 'ann@auth.h'}}", "", []string{"ann get secrets shop/token"}, "spec.oci.tokenHost: Invalid value"},
		"token host, no OCI":    {"{helm: {url: 'https://h/a', secretRef: {name: token}, tokenHost: auth.h}}", "", []string{"ann get secrets shop/token"}, "spec.helm.tokenHost: Forbidden: is for registries"},
		"token host, no Secret": {"{oci: {url: 'oci://h/a', tokenHost: auth.h}}", "", nil, "spec.oci.tokenHost: Forbidden: is where the hub sends"},
		"another scheme":        {"{git: {url: 'git://h/a'}}", "", nil, "must begin with https:// or ssh:// or http://"},
		"credentials in it":     {"{git: {url: 'https://ann:hush@h/a'}}", "", nil, "may not have credentials"},
		"no host":               {"{git: {url: 'https:///a'}}", "", nil, "names no host"},
		"a zone":                {"{git: {url: 'https://[fe80::1%25lo]:80/a'}}", "", nil, "zone or an escape"},
		"an escaped zone":       {"{git: {url: 'https://[::%2525lo]:80/a'}}", "", nil, "zone or an escape"},
		"a query":               {"{git: {url: 'https://h/a?b=c'}}", "", nil, "query"},
		"a line break":          {`{git: {url: "https://h/a\nb"}}`, "", nil, "is no URL"},
		"a Secret over http":    {"{git: {url: 'http://h/a', secretRef: {name: token}}}", "", []string{"ann get secrets shop/token"}, "not to http://"},
		"a Secret":              {withSecret, "", []string{"ann get secrets shop/token"}, ""},
		"a Secret of others":    {withSecret, "", []string{"ann get secrets shop/other"}, `the right to get the Secret "token" is needed`},
		"an edit that keeps it": {"{suspend: true, git: {url: 'https://h/a', secretRef: {name: token}}}", withSecret, nil, ""},
		"a webhook":             {"{git: {url: 'https://h/a'}, webhook: {secretRef: {name: hook}}}", "", []string{"ann get secrets shop/hook"}, ""},
		"a webhook of others":   {"{git: {url: 'https://h/a'}, webhook: {secretRef: {name: hook}}}", "{git: {url: 'https://h/a'}}", []string{"ann get secrets shop/token"}, `spec.webhook.secretRef: the right to get the Secret "hook" is needed`},
		"a webhook that stays":  {"{git: {url: 'https://h/a'}, suspend: true, webhook: {secretRef: {name: hook}}}", "{git: {url: 'https://h/a'}, webhook: {secretRef: {name: hook}}}", nil, ""},
		"reported commits":      {reported, "", []string{"ann get secrets shop/bot"}, ""},
		"reports by others":     {reported, "{git: {url: 'https://h/a/b'}}", nil, `spec.commitStatus.secretRef: the right to get the Secret "bot" is needed`},
		"reports that stay":     {"{git: {url: 'https://h/a/b'}, suspend: true, commitStatus: {server: GitHub, secretRef: {name: bot}}}", reported, nil, ""},
		"reports elsewhere":     {"{git: {url: 'https://evil/a/b'}, commitStatus: {server: GitHub, secretRef: {name: bot}}}", reported, nil, `the right to get the Secret "bot" is needed`},
		"reports by another CA": {"{git: {url: 'https://h/a/b', caBundle: pem}, commitStatus: {server: GitHub, secretRef: {name: bot}}}", reported, nil, `the right to get the Secret "bot" is needed`},
		"reports of charts":     {"{helm: {url: 'https://h/a/b'}, commitStatus: {server: GitHub, secretRef: {name: bot}}}", "", []string{"ann get secrets shop/bot"}, "spec.commitStatus: Invalid value: commits are those of git repositories alone"},
		"reports of no owner":   {"{git: {url: 'https://h/a'}, commitStatus: {server: GitHub, secretRef: {name: bot}}}", "", []string{"ann get secrets shop/bot"}, "has no owner and name"},
		"charts":                {"{helm: {url: 'https://h/charts'}}", "", nil, ""},
		"charts of a registry":  {"{helm: {url: 'oci://h/charts', secretRef: {name: token}}}", "", []string{"ann get secrets shop/token"}, ""},
		"a registry for git":    {"{git: {url: 'oci://h/charts'}}", "", nil, "spec.git.url"},
		"charts of a file":      {"{helm: {url: 'file:///etc'}}", "", nil, "must begin with https:// or oci:// or http://"},
		"charts by http":        {"{helm: {url: 'http://h/a', secretRef: {name: token}}}", "", []string{"ann get secrets shop/token"}, "spec.helm.secretRef"},
		"a Secret for charts":   {"{helm: {url: 'oci://h/charts', secretRef: {name: token}}}", "", nil, `spec.helm.secretRef: the right to get the Secret "token" is needed`},
		"another type":          {"{helm: {url: 'https://h/a', secretRef: {name: token}}}", withSecret, nil, `the right to get the Secret "token" is needed`},
		"an artifact":           {"{oci: {url: 'oci://h/a', secretRef: {name: token}}}", "", []string{"ann get secrets shop/token"}, ""},
		"an artifact by https":  {"{oci: {url: 'https://h/a'}}", "", nil, "spec.oci.url"},
		"its Secret":            {"{oci: {url: 'oci://h/a', secretRef: {name: token}}}", "", nil, "spec.oci.secretRef"},
		"its host is changed":   {"{git: {url: 'https://evil/a', secretRef: {name: token}}}", withSecret, nil, `the right to get the Secret "token" is needed`},
	} {
		err := newGrantingPlugin(Hub{Sources: fakeSources{}}, append(c.rights, "ann impersonate serviceaccounts shop/atoll-sources")...).validateRepository(t.Context(), sourceRequest(t, "Repository", "repositories", c.now, c.before))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: refused with %v, want %q", name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: a credential is in the refusal: %v", name, err)
		}
	}
}

// fakeSources are Sources by namespace.
type fakeSources map[string][]*v1alpha1.Source

func (f fakeSources) InNamespace(namespace string) []*v1alpha1.Source { return f[namespace] }

// The content of a Repository is applied by the rights of accounts, so its writer needs the right to act as them.
func TestContentNeedsTheRightsOfTheSourcesThatApplyIt(t *testing.T) {
	source := func(repository, account string) *v1alpha1.Source {
		s := &v1alpha1.Source{}
		s.Spec.Repository, s.Spec.ServiceAccountName = repository, account
		return s
	}
	hub := Hub{Sources: fakeSources{"shop": {source("web", "deployer"), source("web", "deployer"), source("web", "admin"), source("another", "other")}}}
	const (
		now, suspended = "{git: {url: 'https://h/a'}}", "{git: {url: 'https://h/a'}, suspend: true}"
		former         = "{git: {url: 'https://h/b'}}"
	)
	right := func(account string) string { return "ann impersonate serviceaccounts shop/" + account }
	for name, c := range map[string]struct {
		hub         Hub
		now, before string
		rights      []string
		want        string
	}{
		"a new one that Sources name":         {hub, now, "", []string{right("deployer")}, `ServiceAccount "admin"`},
		"another URL":                         {hub, now, former, []string{right("admin")}, `ServiceAccount "deployer"`},
		"all rights":                          {hub, now, former, []string{right("admin"), right("deployer")}, ""},
		"the content stays":                   {hub, suspended, now, nil, ""},
		"no Source names it, without a right": {Hub{Sources: fakeSources{}}, now, "", []string{right("deployer")}, `ServiceAccount "atoll-sources"`},
		"no Source names it":                  {Hub{Sources: fakeSources{}}, now, "", []string{right("atoll-sources")}, ""},
		"Sources are not known yet":           {Hub{}, now, "", []string{right("atoll-sources")}, "impersonate on all of the namespace"},
		"not known, with the right to all":    {Hub{}, now, "", []string{right("")}, ""},
	} {
		err := newGrantingPlugin(c.hub, c.rights...).validateRepository(t.Context(), sourceRequest(t, "Repository", "repositories", c.now, c.before))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: refused with %v, want %q", name, err, c.want)
		}
	}
}

func TestSourcesThatAreRefused(t *testing.T) {
	source := func(more string) string { return "{repository: r, ref: {branch: main}" + more + "}" }
	account := "ann impersonate serviceaccounts shop/atoll-sources"
	variants := func(second string) string {
		return ", variants: [{name: test, targetCluster: {labelSelector: {matchLabels: {env: test}}}}, {name: prod, " + second + "}]"
	}
	for name, c := range map[string]struct {
		now, before string
		rights      string
		want        string
	}{
		"plain":                         {source(", paths: [deploy, ./a/b], exclude: ['*.json', 'a/**']"), "", account, ""},
		"a path out":                    {source(", paths: [a, b/../../c]"), "", account, "spec.paths[1]"},
		"an absolute path":              {source(", paths: [/etc]"), "", account, "spec.paths[0]"},
		"a pattern out":                 {source(", exclude: [../a]"), "", account, "spec.exclude[0]"},
		"no pattern":                    {source(", exclude: ['[']"), "", account, "is no pattern"},
		"a branch of no form":           {"{repository: r, ref: {branch: 'a..b'}}", "", account, "spec.ref.branch"},
		"a branch like a flag":          {"{repository: r, ref: {branch: '--upload-pack=x'}}", "", account, "spec.ref.branch"},
		"a range of no form":            {"{repository: r, ref: {chart: shop, version: latest please}}", "", account, "spec.ref.version"},
		"a range of versions":           {"{repository: r, ref: {chart: shop, version: '>=1.2 <2'}}", "", account, ""},
		"a tag of no form":              {"{repository: r, ref: {tag: 'a b'}}", "", account, "spec.ref.tag"},
		"a namespace of no form":        {source(", targetNamespace: A"), "", account, "spec.targetNamespace"},
		"an account of no form":         {source(", serviceAccountName: a/b"), "", account, "spec.serviceAccountName"},
		"a chart":                       {source(", build: {type: Helm, helm: {releaseName: web, valuesFiles: [env/prod.yaml], apiVersions: [a.example.com/v1], values: {a: 1}}}"), "", account, ""},
		"values from outside":           {source(", build: {helm: {valuesFiles: [a, ../b]}}"), "", account, "spec.build.helm.valuesFiles[1]"},
		"values of the machine":         {source(", build: {helm: {valuesFiles: [/etc/passwd]}}"), "", account, "spec.build.helm.valuesFiles[0]"},
		"a release of no form":          {source(", build: {helm: {releaseName: A_b}}"), "", account, "spec.build.helm.releaseName"},
		"a version of no form":          {source(", build: {helm: {apiVersions: ['a b']}}"), "", account, "spec.build.helm.apiVersions[0]"},
		"large values":                  {source(", build: {helm: {values: {a: " + strings.Repeat("x", 128<<10) + "}}}"), "", account, "spec.build.helm.values"},
		"values of the hub":             {source(", build: {helm: {valuesFrom: [{kind: Secret, name: a, key: b.yaml, optional: true}, {kind: ConfigMap, name: a}]}}"), "", account, ""},
		"values of no name":             {source(", build: {helm: {valuesFrom: [{kind: Secret, name: a/b}]}}"), "", account, "spec.build.helm.valuesFrom[0].name"},
		"values of no key":              {source(", build: {helm: {valuesFrom: [{kind: Secret, name: a, key: ../b}]}}"), "", account, "spec.build.helm.valuesFrom[0].key"},
		"values without the right":      {source(", build: {helm: {valuesFrom: [{kind: Secret, name: a}]}}"), source(""), "", "impersonate"},
		"a variant's values of the hub": {source(variants("targetCluster: {labelSelector: {matchLabels: {env: prod}}}, helm: {valuesFrom: [{kind: ConfigMap, name: a}]}")), "", account, ""},
		"a variant's values of no key":  {source(variants("targetCluster: {clusterSets: [a]}, helm: {valuesFrom: [{kind: ConfigMap, name: a, key: 'a b'}]}")), "", account, "spec.variants[1].helm.valuesFrom[0].key"},
		"a variant's Secret":            {source(variants("targetCluster: {clusterSets: [a]}, helm: {valuesFrom: [{kind: Secret, name: a}]}")), "", account, "OverridePolicies, which have more readers"},
		"a Secret with variants":        {source(", build: {helm: {valuesFrom: [{kind: Secret, name: a}]}}" + variants("targetCluster: {clusterSets: [a]}")), "", account, "OverridePolicies, which have more readers"},
		"a Secret with exclusions":      {source(", build: {helm: {valuesFrom: [{kind: Secret, name: a}]}}, variants: [{name: none, targetCluster: {labelSelector: {matchLabels: {env: prod}}}, exclude: true}]"), "", account, ""},
		"other values without it":       {source(", build: {helm: {values: {a: 2}}}"), source(", build: {helm: {values: {a: 1}}}"), "", "impersonate"},
		"variants":                      {source(variants("targetCluster: {labelSelector: {matchLabels: {env: prod}}}, paths: [a], helm: {valuesFiles: [prod.yaml], values: {a: 1}}, patches: [{kind: A}]")), "", account, ""},
		"a variant's path out":          {source(variants("targetCluster: {clusterSets: [a]}, paths: [a, ../b]")), "", account, "spec.variants[1].paths[1]"},
		"a variant's values from out":   {source(variants("targetCluster: {clusterSets: [a]}, helm: {valuesFiles: [/a]}")), "", account, "spec.variants[1].helm.valuesFiles[0]"},
		"a variant of no selector":      {source(variants("targetCluster: {labelSelector: {matchLabels: {'a b': c}}}")), "", account, "spec.variants[1].targetCluster.labelSelector"},
		"a variant of no expression":    {source(variants("targetCluster: {celSelector: 'cluster.'}")), "", account, "spec.variants[1].targetCluster.celSelector"},
		"large variants":                {source(variants("targetCluster: {clusterSets: [a]}, helm: {values: {a: " + strings.Repeat("x", 256<<10) + "}}")), "", account, "spec.variants: Too long"},
		"large targets":                 {source(variants("targetCluster: {clusterSets: [a" + strings.Repeat(", 'a23456789'", 2000) + "]}")), "", account, "more than 16384 bytes"},
		"a variant for others":          {source(variants("targetCluster: {clusterNames: [oslo]}")), "", account, `no cluster "oslo"`},
		"a variant without the right":   {source(variants("targetCluster: {clusterSets: [asia]}, exclude: true")), source(""), "", "impersonate"},
		"a cluster outside of its sets": {source(", placement: {clusterAffinity: {clusterNames: [oslo]}}"), "", account, `no cluster "oslo"`},
		"no right to the account":       {source(""), "", "", `the verb impersonate on it is needed`},
		"another account":               {source(", serviceAccountName: admin"), "", account, `ServiceAccount "admin"`},
		"an edit without the right":     {source(", paths: [b]"), source(""), "", "impersonate"},
		"a suspension without it":       {source(", suspend: true"), source(""), "", ""},
		"a sync without it":             {source(", syncRequest: '2026-01-02T03:04:05Z'"), source(""), "", ""},
	} {
		err := newGrantingPlugin(Hub{Sets: fakeSets{}}, c.rights).validateSource(t.Context(), sourceRequest(t, "Source", "sources", c.now, c.before))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: refused with %v, want %q", name, err, c.want)
		}
	}
}
