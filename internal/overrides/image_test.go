package overrides

import (
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
)

const testDigest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

const otherDigest = "sha256:0123456789012345678901234567890101234567890123456789012345678901"

func TestParseImage(t *testing.T) {
	for ref, want := range map[string]imageReference{
		"nginx":                                 {repository: "nginx"},
		"nginx:1.27":                            {repository: "nginx", tag: "1.27"},
		"library/nginx":                         {repository: "library/nginx"},
		"registry.k8s.io/pause:3.10":            {registry: "registry.k8s.io", repository: "pause", tag: "3.10"},
		"localhost/x":                           {registry: "localhost", repository: "x"},
		"localhost:5000/a/b:v1":                 {registry: "localhost:5000", repository: "a/b", tag: "v1"},
		"10.0.0.1:5000/a":                       {registry: "10.0.0.1:5000", repository: "a"},
		"[fd00::1]:5000/a:b":                    {registry: "[fd00::1]:5000", repository: "a", tag: "b"},
		"host:5000":                             {repository: "host", tag: "5000"},
		"r.io/a@" + testDigest:                  {registry: "r.io", repository: "a", digest: testDigest},
		"r.io:443/a/b_c/d-e:t@" + testDigest:    {registry: "r.io:443", repository: "a/b_c/d-e", tag: "t", digest: testDigest},
		"123456789012.dkr.ecr.eu.aws.com/a/b:l": {registry: "123456789012.dkr.ecr.eu.aws.com", repository: "a/b", tag: "l"},
	} {
		got, err := parseImage(ref)
		if err != nil || got != want {
			t.Errorf("parseImage(%q) = %+v, %v; want %+v", ref, got, err, want)
		}
		if got.String() != ref {
			t.Errorf("%q came back as %q", ref, got)
		}
	}
	for _, ref := range []string{"", "/", "a//b", "A", "a:", "a:b:c", "a@sha256:x", "r.io/", "r.io:x/a", "a b", "a:-x", "a:" + strings.Repeat("x", 129)} {
		if im, err := parseImage(ref); err == nil {
			t.Errorf("parseImage(%q) = %+v, want an error", ref, im)
		}
	}
}

func TestOverrideImage(t *testing.T) {
	const add, remove, replace = v1alpha1.OverrideAdd, v1alpha1.OverrideRemove, v1alpha1.OverrideReplace
	const registry, repository, tag, digest = v1alpha1.ImageRegistry, v1alpha1.ImageRepository, v1alpha1.ImageTag, v1alpha1.ImageDigest
	for _, tc := range []struct {
		ref  string
		c    v1alpha1.ImageComponent
		op   v1alpha1.OverriderOperator
		v    string
		want string // empty: an error
	}{
		{"nginx", registry, replace, "m.example.com", "m.example.com/nginx"},
		{"nginx", registry, add, "m.example.com:5000", "m.example.com:5000/nginx"},
		{"r.io:443/a/b:t@" + testDigest, registry, replace, "m.example.com/cache", "m.example.com/cache/a/b:t@" + testDigest},
		{"r.io/a:t", registry, remove, "", "a:t"},
		{"r.io/a:t", registry, add, ".cn", "r.io.cn/a:t"},
		{"r.io/a:t", repository, replace, "x/y", "r.io/x/y:t"},
		{"r.io/a:t", repository, add, "-slim", "r.io/a-slim:t"},
		{"r.io/a:t", repository, remove, "", ""},
		{"r.io/a", tag, replace, "v2", "r.io/a:v2"},
		{"r.io:1/a:v1", tag, replace, "v2", "r.io:1/a:v2"},
		{"r.io/a:v1", tag, add, "-slim", "r.io/a:v1-slim"},
		{"r.io/a", tag, add, "-slim", ""},
		{"r.io/a:v1", tag, remove, "", "r.io/a"},
		{"r.io/a@" + testDigest, tag, replace, "v2", "r.io/a:v2"},
		{"r.io/a:v1", tag, replace, testDigest, "r.io/a@" + testDigest},
		{"r.io/a:v1@" + testDigest, tag, add, "x", ""},
		{"r.io/a:v1", tag, replace, "no tag", ""},
		{"r.io/a:v1", registry, replace, "no registry", ""},
		{"Not An Image", tag, replace, "v2", ""},
		{"r.io/a:v1", digest, add, testDigest, "r.io/a:v1@" + testDigest},
		{"r.io/a:v1@" + otherDigest, digest, add, testDigest, "r.io/a:v1@" + testDigest},
		{"r.io/a@" + otherDigest, digest, replace, testDigest, "r.io/a@" + testDigest},
		{"r.io/a", digest, replace, testDigest, "r.io/a@" + testDigest},
		{"r.io/a:v1@" + testDigest, digest, remove, "", "r.io/a:v1"},
		{"r.io/a:v1", digest, remove, "", "r.io/a:v1"},
		{"r.io/a:v1", digest, replace, "v2", ""},
		{"r.io/a:v1", "Colour", replace, "v2", ""},
	} {
		got, err := overrideImageReference(tc.ref, v1alpha1.ImageOverrider{Component: tc.c, Operator: tc.op, Value: tc.v})
		if tc.want == "" {
			if err == nil {
				t.Errorf("%s %s of %q with %q = %q, want an error", tc.op, tc.c, tc.ref, tc.v, got)
			}
			continue
		}
		if err != nil || got != tc.want {
			t.Errorf("%s %s of %q with %q = %q, %v; want %q", tc.op, tc.c, tc.ref, tc.v, got, err, tc.want)
		}
	}
}

// FuzzOverrideImage: what comes out is an image, or an error; replacing a component
// sets exactly it.
func FuzzOverrideImage(f *testing.F) {
	for _, ref := range []string{"nginx", "r.io:443/a/b:t@" + testDigest, "localhost/x", "host:5000", "[::1]:5/a", "a/b.c/d:e"} {
		f.Add(ref, "m.example.com:80", byte(0), byte(2))
		f.Add(ref, "v2", byte(2), byte(0))
		f.Add(ref, otherDigest, byte(3), byte(2))
	}
	components := []v1alpha1.ImageComponent{v1alpha1.ImageRegistry, v1alpha1.ImageRepository, v1alpha1.ImageTag, v1alpha1.ImageDigest}
	operators := []v1alpha1.OverriderOperator{v1alpha1.OverrideAdd, v1alpha1.OverrideRemove, v1alpha1.OverrideReplace}
	f.Fuzz(func(t *testing.T, ref, value string, c, op byte) {
		o := v1alpha1.ImageOverrider{Component: components[int(c)%len(components)], Operator: operators[int(op)%3], Value: value}
		before, err := parseImage(ref)
		if err == nil && before.String() != ref {
			t.Fatalf("%q came back as %q", ref, before)
		}
		got, err := overrideImageReference(ref, o)
		if err != nil {
			return
		}
		after, err := parseImage(got)
		if err != nil {
			t.Fatalf("%+v of %q gave %q, which is no image: %v", o, ref, got, err)
		}
		if o.Component == v1alpha1.ImageTag && (after.registry != before.registry || after.repository != before.repository) {
			t.Fatalf("%+v of %q gave %q: more than the tag changed", o, ref, got)
		}
		if o.Component == v1alpha1.ImageRepository && (after.tag != before.tag || after.digest != before.digest) {
			t.Fatalf("%+v of %q gave %q: the tag changed", o, ref, got)
		}
		if after.digest = before.digest; o.Component == v1alpha1.ImageDigest && after != before {
			t.Fatalf("%+v of %q gave %q: more than the digest changed", o, ref, got)
		}
	})
}
