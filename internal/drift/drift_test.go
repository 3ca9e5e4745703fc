package drift

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

var (
	conf   = atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "conf"}
	secret = atoll.ItemKey{Kind: "Secret", Namespace: "shop", Name: "key"}
)

func TestLimit(t *testing.T) {
	if LimitAndRedact(conf, nil) != nil {
		t.Error("no drift became one")
	}
	long := strings.Repeat("é", 400)
	field := atoll.DriftField{Path: long, Live: long, Wanted: long, Managers: []string{long, "b", "c", "d"}, Since: 1 << 62}
	large := &atoll.Drift{Total: -7, Since: -1}
	for range 20 {
		large.Fields = append(large.Fields, field)
	}
	got := LimitAndRedact(conf, large)
	if len(got.Fields) != atoll.MaxDriftFields || int(got.Total) != atoll.MaxDriftFields || got.Since != 0 {
		t.Errorf("%d fields, total %d, since %d", len(got.Fields), got.Total, got.Since)
	}
	f := got.Fields[0]
	if len(f.Path) > atoll.MaxDriftPath || len(f.Live) > atoll.MaxDriftValue || len(f.Wanted) > atoll.MaxDriftValue ||
		len(f.Managers) != atoll.MaxDriftManagers || len(f.Managers[0]) > atoll.MaxDriftManager || f.Since != atoll.MaxUnixSeconds {
		t.Errorf("field %+v", f)
	}
	if again := LimitAndRedact(conf, got); !reflect.DeepEqual(again, got) {
		t.Errorf("limited twice: %+v, once: %+v", again, got)
	}
	if f := LimitAndRedact(secret, large).Fields[0]; f.Live != "" || f.Wanted != "" || f.Path == "" {
		t.Errorf("field of a Secret: %+v", f)
	}
	if len(large.Fields) != 20 || large.Fields[0].Live != long {
		t.Error("the argument changed")
	}
}

func FuzzLimit(f *testing.F) {
	f.Add(`{"m":true,"t":3,"s":5,"f":[{"p":"/a","l":"1","w":"2","m":["x"],"s":4}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		var d atoll.Drift
		if json.Unmarshal([]byte(text), &d) != nil {
			return
		}
		once := LimitAndRedact(conf, &d)
		if twice := LimitAndRedact(conf, once); !reflect.DeepEqual(once, twice) {
			t.Errorf("%+v, limited again: %+v", once, twice)
		}
		Describe(once)
	})
}

func TestWithTimes(t *testing.T) {
	before := &atoll.Drift{Total: 2, Fields: []atoll.DriftField{{Path: "/a", Since: 5}, {Path: "/b", Since: 6}}}
	now := &atoll.Drift{Total: 2, Fields: []atoll.DriftField{{Path: "/b"}, {Path: "/c", Since: 3}}}
	got := WithTimes(now, before, 9)
	if got.Fields[0].Since != 6 || got.Fields[1].Since != 9 || got.Since != 0 {
		t.Errorf("%+v", got)
	}
	if now.Fields[0].Since != 0 {
		t.Error("the argument changed")
	}
	missing := &atoll.Drift{Missing: true}
	first := WithTimes(missing, before, 9)
	if again := WithTimes(missing, first, 12); first.Since != 9 || again.Since != 9 {
		t.Errorf("missing since %d, then since %d", first.Since, again.Since)
	}
	if WithTimes(nil, before, 9) != nil {
		t.Error("no drift became one")
	}
}

func TestDescribe(t *testing.T) {
	for want, d := range map[string]*atoll.Drift{
		"the member does not have the object":    {Missing: true},
		"1 field differs: /spec/replicas":        {Total: 1, Fields: []atoll.DriftField{{Path: "/spec/replicas"}}},
		"9 fields differ: /a, /b, and 7 more":    {Total: 9, Fields: []atoll.DriftField{{Path: "/a"}, {Path: "/b"}}},
		"2 fields differ: /spec/a, /data/b~1c":   {Total: 2, Fields: []atoll.DriftField{{Path: "/spec/a"}, {Path: "/data/b~1c"}}},
		"9 fields differ: /spec/a, and 8 more":   FirstField(&atoll.Drift{Total: 9, Fields: []atoll.DriftField{{Path: "/spec/a"}, {Path: "/b"}}}),
		"1 field differs: /metadata/labels/team": FirstField(&atoll.Drift{Total: 1, Fields: []atoll.DriftField{{Path: "/metadata/labels/team"}}}),
	} {
		if got := Describe(d); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// An ID that no agent makes is no ID: nothing can be approved by it.
func TestTheIDOfAReportedDrift(t *testing.T) {
	for id, want := range map[string]string{
		"0123456789abcdef": "0123456789abcdef", "": "", "0123456789ABCDEF": "", "0123456789abcde": "", "0123456789abcdef0": "", "0123456789abcde\n": "", "../../../../a/b/": "",
	} {
		if got := LimitAndRedact(atoll.ItemKey{}, &atoll.Drift{Missing: true, ID: id}); got.ID != want {
			t.Errorf("%q becomes %q", id, got.ID)
		}
	}
}
