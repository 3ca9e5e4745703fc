package atoll

import "strings"

// RowReason is a RowSpec.Reason taken apart. It reads "Word", "Word plan=HASH",
// and either with ": text" behind.
type RowReason struct {
	Reason Reason
	// Plan is the hash of the removal plan that waits for a confirmation.
	Plan string
	Text string
}

// String returns what ParseRowReason reads. Texts are cut at 160 bytes, since every
// row stores its own.
func (r RowReason) String() string {
	s := string(r.Reason)
	if r.Plan != "" {
		s += planSeparator + r.Plan
	}
	if r.Text != "" {
		s += ": " + truncateText(r.Text, 160)
	}
	return s
}

// ParseRowReason takes a reason apart.
func ParseRowReason(s string) RowReason {
	head, text, _ := strings.Cut(s, ": ")
	word, plan, _ := strings.Cut(head, planSeparator)
	return RowReason{Reason: Reason(word), Plan: plan, Text: text}
}

// Cause returns the reason for which a row is to go, also where a budget keeps it.
func (r RowReason) Cause() RowReason {
	if !IsBudgetReason(r.Reason) {
		return r
	}
	return ParseRowReason(r.Text)
}

const planSeparator = " plan="

// truncateText cuts s to at most n bytes, between characters.
func truncateText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const more = "…"
	end := n - len(more)
	for end > 0 && s[end]&0xC0 == 0x80 {
		end--
	}
	return s[:end] + more
}
