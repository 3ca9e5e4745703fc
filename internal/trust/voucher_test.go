package trust

import "testing"

func TestVouchers(t *testing.T) {
	key, other := []byte("one key of a hub, of some length"), []byte("the key of another hub, as long")
	v := NewVoucher(key, "oslo", "u1")
	shown, err := ParseToken(v.RevealSecret())
	if err != nil {
		t.Fatalf("a voucher is shown like a token: %v", err)
	}
	if !shown.VouchesFor(key, "oslo", "u1") {
		t.Error("a voucher does not hold")
	}
	if NewVoucher(key, "oslo", "u1").ID == v.ID {
		t.Error("two vouchers have one ID, by which an agent decides that it may join again")
	}
	for what, holds := range map[string]bool{
		"another name":  shown.VouchesFor(key, "lima", "u1"),
		"another UID":   shown.VouchesFor(key, "oslo", "u2"),
		"another key":   shown.VouchesFor(other, "oslo", "u1"),
		"a token":       NewToken().VouchesFor(key, "oslo", "u1"),
		"names shifted": shown.VouchesFor(key, "oslou", "1"),
		"another ID":    Token{ID: NewToken().ID, secret: v.secret}.VouchesFor(key, "oslo", "u1"),
	} {
		if holds {
			t.Errorf("%s: the voucher holds", what)
		}
	}
}
