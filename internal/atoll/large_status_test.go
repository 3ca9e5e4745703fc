package atoll

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestLargeStatusesAreDropped(t *testing.T) {
	long := strings.Repeat("x", LargeStatusBytes)
	for name, c := range map[string]struct {
		reflected string
		dropped   bool
		late      bool
	}{
		"small":                     {`{"s":{"a":1}}`, false, false},
		"large":                     {`{"s":{"a":"` + long + `"}}`, true, false},
		"large of an older object":  {`{"s":{"a":"` + long + `"},"late":true}`, true, true},
		"large, with late in it":    {`{"s":{"late":true,"a":"` + long + `"}}`, true, false},
		"large, but not to join":    {`{"c":["` + long + `"]}`, false, false},
		"of the bound":              {`{"s":"` + long[:LargeStatusBytes-len(`{"s":""}`)] + `"}`, false, false},
		"one byte over the bound":   {`{"s":"` + long[:LargeStatusBytes-len(`{"s":""}`)+1] + `"}`, true, false},
		"large, of another version": {`{"s":["` + long + `"]}`, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			in := RowStatus{Items: []ItemStatus{{Health: Healthy, ReflectedStatus: json.RawMessage(`{"n":[1]}`)}, {Health: Degraded, ReflectedStatus: json.RawMessage(c.reflected)}}}
			out, dropped := HashLargeStatuses(in)
			if dropped != c.dropped || out.Items[1].Health != Degraded || string(out.Items[0].ReflectedStatus) != `{"n":[1]}` {
				t.Fatalf("dropped %t: %v", dropped, out.Items)
			}
			if string(in.Items[1].ReflectedStatus) != c.reflected {
				t.Error("the argument is changed")
			}
			want := c.reflected
			if c.dropped {
				want = `{"s":null,`
				if c.late {
					want += `"late":true,`
				}
				want += `"left":"` + HashParts([]byte(c.reflected)) + `"}`
			}
			if got := string(out.Items[1].ReflectedStatus); got != want {
				t.Errorf("got %.200s, want %.200s", got, want)
			}
			if _, again := HashLargeStatuses(out); again {
				t.Error("a second call drops more")
			}
		})
	}
}
