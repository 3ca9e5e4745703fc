package standing

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// What is to be warned of, and when.
func TestWarningsAboutCertificates(t *testing.T) {
	now := time.Now()
	day := 24 * time.Hour
	for name, c := range map[string]struct {
		is   Certificate
		want string
	}{
		"a CA of years":                {Certificate{Name: "agent CA", Ends: now.Add(3 * 365 * day), Issued: now.Add(-17 * 365 * day)}, ""},
		"a CA of months":               {Certificate{Name: "agent CA", Ends: now.Add(300 * day), Issued: now}, "atoll ca rotate"},
		"the hub's own, renewed":       {Certificate{Name: "API", Own: true, Ends: now.Add(330 * day), Issued: now.Add(-35 * day)}, ""},
		"the hub's own, and not":       {Certificate{Name: "API", Own: true, Ends: now.Add(80 * day), Issued: now.Add(-285 * day)}, "has not renewed it"},
		"given by a flag":              {Certificate{Name: "API, of --tls-cert-file", Ends: now.Add(60 * day), Issued: now.Add(-30 * day)}, ""},
		"given by a flag, soon to end": {Certificate{Name: "API, of --tls-cert-file", Ends: now.Add(20 * day), Issued: now.Add(-70 * day)}, "replace the files"},
		"ended":                        {Certificate{Name: "gateway", Own: true, Ends: now.Add(-day), Issued: now.Add(-365 * day)}, "has ended"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.is.Warning(now); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("warned %q", got)
			}
		})
	}
	if !slices.Contains(strings.Fields(Standing{Warnings: []string{"look"}}.Text(false)), "WARNING:") {
		t.Error("people read of no warning")
	}
	former := Standing{FormerUsers: []FormerUser{{"jane", now}, {"joe", now}}}.Text(false)
	if !strings.Contains(former, "user jane came by a client certificate of the former CA, at "+stamp(now)) || !strings.Contains(former, "user joe ") {
		t.Errorf("people read of no users that are to be cut off: %s", former)
	}
}
