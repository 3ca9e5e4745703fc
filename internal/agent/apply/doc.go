// Package apply makes a member be what its Bundles say, and keeps it so.
//
// Contract:
//
//   - Upsert returns once the manifest lies in the member's store; what it asks for
//     happens later, in Run. Both work without the hub.
//   - Intent is stored before an object is created, and its UID after it, in one
//     write per shard and pass. A crash in between is healed from the labels of
//     the object.
//   - Each object is created in a pass that stored its intent first. It carries whose
//     it is, of which template, and whether it was there before, so that Recover
//     finds what the store has lost.
//   - Replicas that an HPA of the member owns are handed over before the HPA is
//     there and taken back after it is gone or has another target. In between they
//     never have a value that neither the HPA nor the hub asked for.
//   - Whoever's claims changed, by whomever, is told of by Changed.
//   - Objects that are ours are applied with force, guarded by their UID. What is
//     not ours is touched only as the Bundle's conflict resolution says.
//   - What the policy of the member's administrator forbids is neither applied nor
//     corrected, and says so. What is there stays. Writes in a namespace are made in the
//     name of the ServiceAccount that the policy has for it.
//   - Deletion is by UID, only for tombstones (claims decides), only while the
//     fence holds, and reported only once the object is confirmed gone.
//   - A failing object holds up no other one: each has its own backoff and its own
//     reason. Within a pass namespaces and CRDs come first, webhooks last.
//   - The Engine may be called from any goroutine. Run is called once.
package apply
