package expr

import (
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

var tokyo = Cluster{
	ClusterView: &atoll.ClusterView{
		Name: "tokyo-1", Labels: map[string]string{"env": "prod", "team": "pay", "atoll.dev/x": "y"}, Region: "ap", Zone: "ap-a", Provider: "aws",
		Properties: map[string]string{"nodes": "12", "memory": "64Gi", "version": "v1.36.3"},
		Sets:       []string{"asia", "prod"},
	},
}

func TestMatch(t *testing.T) {
	for text, want := range map[string]string{
		"true":                                 "true",
		"cluster.name == 'tokyo-1'":            "true",
		"cluster.labels['env'] == 'prod'":      "true",
		"cluster.labels.env == 'prod'":         "true",
		"cluster.labels['atoll.dev/x'] == 'y'": "true",
		"cluster.labels['env'] == 'test'":      "false",
		"cluster.labels['dns'] == 'x'":         "no such key: dns",
		"'dns' in cluster.labels":              "false",
		"has(cluster.labels.team)":             "true",
		"has(cluster.labels.dns)":              "false",
		"cluster.labels['dns'] == 'x' || true": "true",
		"cluster.region == 'ap' && cluster.zone.endsWith('-a') && cluster.provider in ['aws', 'gcp']": "true",
		"'asia' in cluster.sets && !('eu' in cluster.sets)":                                           "true",
		"cluster.sets.exists(s, s.startsWith('pr'))":                                                  "true",
		"cluster.labels.all(k, k != 'env')":                                                           "false",
		"cluster.name.matches('^tokyo-[0-9]+$')":                                                      "true",
		"quantity(cluster.properties['memory']) > quantity('32Gi')":                                   "true",
		"quantity(cluster.properties['nodes']) >= 13":                                                 "false",
		"int(cluster.properties.nodes) == 12":                                                         "true",
		"versionAtLeast(cluster.properties['version'], '1.30')":                                       "true",
		"versionAtLeast(cluster.properties['version'], '1.37')":                                       "false",
		"quantity(cluster.name) > 1.0":                                                                `quantity("tokyo-1"): it is none`,
		"versionAtLeast(cluster.name, '1')":                                                           `versionAtLeast: "tokyo-1" is no version`,
		"'ap-a' in cluster.zones && cluster.zones.exists(z, z.endsWith('-a'))":                        "true",
		"'ap-b' in cluster.zones || '' in cluster.zones || cluster.zones.size() != 1":                 "false",
		"'gpu' in cluster.properties":                                                                 "false",
	} {
		t.Run(text, func(t *testing.T) {
			s, err := CompileClusterSelector(text)
			if err != nil {
				t.Fatal(err)
			}
			ok, err := s.MatchCluster(tokyo)
			got := map[bool]string{true: "true", false: "false"}[ok]
			if err != nil {
				got = err.Error()
			}
			if got != want {
				t.Errorf("is %s, want %s", got, want)
			}
		})
	}
}

// An expression that cannot be honoured does not compile, and the error names the place.
func TestCompileRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"cluster.name":                                     "gives a string",
		"cluster.name ==":                                  "line 1, column 16",
		"cluster.age > 3":                                  `line 1, column 1: cluster has no field "age" here: it has name, labels, region, zone, zones, provider, sets and properties`,
		"'a' == 'b' ||\n  cluster == 'x'":                  "line 2, column 3: cluster is no value by itself: it has name",
		"cluster.labels['env'] > 3":                        "found no matching overload",
		"cluster.taints.size() == 0":                       `cluster has no field "taints" here`,
		"secret.data == 'x'":                               "undeclared reference to 'secret'",
		"cluster.properties[cluster.name] == 'x'":          "literal name",
		"cluster.properties.all(k, k == 'x')":              "literal name",
		"cluster.properties[cluster.name].startsWith('x')": "literal name",
		"size(cluster.properties) > 0":                     "literal name",
		"[cluster.properties].exists(p, 'x' in p)":         "literal name",
		"cluster.name in cluster.properties":               "literal name",
		"{'a': cluster.properties} == {}":                  "literal name",
		"cluster.labels.all(a, cluster.labels.all(b, cluster.labels.all(c, a != b || b != c)))":      "at most 2000",
		"cluster.labels.exists(a, cluster.labels.exists(b, cluster.labels[a].matches(b + '(x+)+')))": "at most 2000",
		strings.Repeat("(", 200) + "true" + strings.Repeat(")", 200):                                 "recursion",
		"cluster.name == '" + strings.Repeat("x", MaxLength) + "'":                                   "bytes long",
	} {
		t.Run(text[:min(len(text), 60)], func(t *testing.T) {
			_, err := CompileClusterSelector(text)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want one with %q", err, want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("the error has several lines: %q", err)
			}
		})
	}
}

// A Selector lists the properties that it reads, in every form of access.
func TestPropertiesRead(t *testing.T) {
	s, err := CompileClusterSelector("'b' in cluster.properties && cluster.properties['a'] == 'x' || has(cluster.properties.c) && ['q'].all(x, cluster.properties.d == x) && cluster.properties['a'] != 'y' || cluster.properties['e'].startsWith('v')")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(s.PropertyNames(), " "); got != "a b c d e" {
		t.Errorf("reads %q, want a b c d e", got)
	}
	if s, _ := CompileClusterSelector("cluster.labels['properties'] == 'a'"); len(s.PropertyNames()) > 0 {
		t.Errorf("reads %q, and no property", s.PropertyNames())
	}
}

// The evaluation on a Cluster larger than the estimate stops at its cost.
func TestALargeClusterIsGivenUp(t *testing.T) {
	s, err := CompileClusterSelector("cluster.labels.all(k, k != 'none')")
	if err != nil {
		t.Fatal(err)
	}
	huge := map[string]string{}
	for i := range 5000 {
		huge[strings.Repeat("x", i%50+1)+string(rune('a'+i%26))+string(rune('a'+i/26%26))] = "v"
	}
	if ok, err := s.MatchCluster(Cluster{ClusterView: &atoll.ClusterView{Name: "huge", Labels: huge}}); ok || err == nil || !strings.Contains(err.Error(), "cost") {
		t.Errorf("match %t, error %v, want one about the cost", ok, err)
	}
}

// Equal texts share one program.
func TestCompiledOnce(t *testing.T) {
	a, _ := CompileClusterSelector("cluster.zone == 'once'")
	b, _ := CompileClusterSelector("cluster.zone == 'once'")
	if a != b {
		t.Error("compiled twice")
	}
}

func FuzzCompile(f *testing.F) {
	f.Add("cluster.labels['env'] == 'prod'")
	f.Add("'b' in cluster.properties && [1,2].map(x, x+1).size() > 1")
	f.Add("cluster.sets.exists(s, s.matches('(a|b)+'))")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := CompileClusterSelector(text)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error of several lines: %q", err)
			}
			return
		}
		_, _ = s.MatchCluster(tokyo)
		_, _ = s.MatchCluster(Cluster{ClusterView: &atoll.ClusterView{}})
	})
}

func BenchmarkMatch(b *testing.B) {
	for _, text := range []string{
		"cluster.labels['env'] == 'test'",
		"cluster.labels['env'] == 'test' || cluster.region in ['eu', 'us'] && cluster.name.startsWith('x')",
		"cluster.labels.exists(k, k.startsWith('q'))",
	} {
		b.Run(text, func(b *testing.B) {
			s, err := CompileClusterSelector(text)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				_, _ = s.MatchCluster(tokyo)
			}
		})
	}
}
