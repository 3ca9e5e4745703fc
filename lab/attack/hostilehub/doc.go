// Package hostilehub harms an agent on purpose, as its hub could, and reports whether the agent held.
//
// Contract:
//
//   - The table Attacks holds every attack. One entry adds one: the command, the list and the tests
//     walk the table.
//   - RunAttack starts the built agent beside a real member, in a cgroup with the memory of the agent's
//     chart. A hub end in this process admits the agent, orders one ConfigMap honestly, attacks, and
//     is honest again.
//   - The agent held if its process lived, the ConfigMap stayed the same object, the member's Lease was
//     renewed in time, and the honest hub after the attack got an update and a new ConfigMap applied.
//   - The hub end removes what it ordered in the attack, so that the member can be attacked again.
package hostilehub
