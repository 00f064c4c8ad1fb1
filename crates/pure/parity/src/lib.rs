//! XOR, P, P+Q, delta updates and recovery, by the best instructions the CPU has
