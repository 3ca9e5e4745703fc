package standing

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// The certificates to warn about, and the time.
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
		"given by a flag, of a year":   {Certificate{Name: "API, of --tls-cert-file", Ends: now.Add(30 * day), Issued: now.Add(-335 * day)}, ""},
		"given by a flag, of days":     {Certificate{Name: "API, of --tls-cert-file", Ends: now.Add(5 * day), Issued: now.Add(-5 * day)}, ""},
		"ended":                        {Certificate{Name: "gateway", Own: true, Ends: now.Add(-day), Issued: now.Add(-365 * day)}, "has ended"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.is.WarningText(now); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("warned %q", got)
			}
		})
	}
	if !slices.Contains(strings.Fields(CAStatus{Warnings: []string{"look"}}.FormatText(false)), "WARNING:") {
		t.Error("people read of no warning")
	}
	former := CAStatus{FormerUsers: []FormerUser{{"jane", now}, {"joe", now}}}.FormatText(false)
	if !strings.Contains(former, "user jane came by a client certificate of the former CA, at "+now.UTC().Format(time.RFC3339)) || !strings.Contains(former, "user joe ") {
		t.Errorf("people read of no users that are to be cut off: %s", former)
	}
}

// There is no advice to end a rotation while it would cut off connected agents.
func TestWhenARotationMayEnd(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		of          CAStatus
		says, lacks []string
	}{
		"nothing is rotated":    {CAStatus{Agents: AgentCertificateCounts{Current: 3}}, []string{"present CA  3"}, []string{"atoll ca finish", "not yet", "fail to renew"}},
		"some are to come":      {CAStatus{RotatingSince: &now, Agents: AgentCertificateCounts{Current: 3, Former: 2, FormerClusters: []string{"oslo", "lima"}}}, []string{"not yet                        2: oslo, lima\n", "Wait until all"}, []string{"All connected agents"}},
		"more than are named":   {CAStatus{RotatingSince: &now, Agents: AgentCertificateCounts{Former: 3, FormerClusters: []string{"oslo", "lima"}}}, []string{"3: oslo, lima, …"}, []string{"All connected agents"}},
		"all have come":         {CAStatus{RotatingSince: &now, Agents: AgentCertificateCounts{Current: 5, Away: 1}}, []string{"All connected agents", "atoll ca finish", "away, and not yet                            1"}, []string{"Wait until all"}},
		"some were left behind": {CAStatus{Agents: AgentCertificateCounts{Former: 1, FormerClusters: []string{"oslo"}}}, []string{"1: oslo"}, []string{"atoll ca finish"}},
		"some do not renew":     {CAStatus{Agents: AgentCertificateCounts{Overdue: 2, OverdueClusters: []string{"oslo"}}}, []string{"fail to renew                           2: oslo, …"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			text := c.of.FormatText(false)
			for _, want := range c.says {
				if !strings.Contains(text, want) {
					t.Errorf("it does not say %q:\n%s", want, text)
				}
			}
			for _, not := range c.lacks {
				if strings.Contains(text, not) {
					t.Errorf("it says %q:\n%s", not, text)
				}
			}
		})
	}
}
