;; The two things that the engine cannot do fast in JavaScript: to multiply matrices, and exponentials.
;;
;; Numbers are float32.  A vector (v128) holds four of them, side by side, and one instruction adds or
;; multiplies all four.
;;
;; tools/pages/kernel.py compiles this text twice: as it stands, and with relaxed SIMD, in which
;; f32x4.relaxed_madd does a multiplication and an addition at once and rounds as the processor likes.
(module
  (import "live" "memory" (memory 1))

  ;; C = A B, or C = C + A B where $add is 1      A has M rows and K columns, B K rows and N columns
  ;;
  ;; The kernel works on tiles of C, four rows high and two vectors (eight columns) wide: eight vectors
  ;; that stay in the processor's registers while k runs from 0 to K.  For every k, two vectors of B are
  ;; loaded and four numbers of A, and each meets each: eight products for six loads.  Where only four
  ;; columns are left, the tile is one vector wide.
  ;;
  ;; M and N are multiples of 4.  Places and distances are in bytes: `down` leads from a row to the next,
  ;; `along` from a column to the next, so that A may be the transpose of what is stored.
  (func (export "multiply")
    (param $M i32) (param $N i32) (param $K i32)
    (param $A i32) (param $A_down i32) (param $A_along i32)
    (param $B i32) (param $B_down i32)
    (param $C i32) (param $C_down i32) (param $add i32)
    (local $i i32) (local $j i32) (local $k i32)      ;; counted down to 0
    (local $A_tile i32) (local $C_tile i32)           ;; where the tile's rows begin
    (local $a_at i32) (local $b_at i32)
    (local $A_down2 i32) (local $A_down3 i32) (local $C1 i32) (local $C2 i32) (local $C3 i32)
    (local $a v128) (local $b0 v128) (local $b1 v128) (local $zero v128)
    (local $c00 v128) (local $c01 v128) (local $c10 v128) (local $c11 v128)
    (local $c20 v128) (local $c21 v128) (local $c30 v128) (local $c31 v128)

    (local.set $A_down2 (i32.mul (local.get $A_down) (i32.const 2)))
    (local.set $A_down3 (i32.mul (local.get $A_down) (i32.const 3)))

    ;; Two vectors wide, as long as there are eight columns.
    (local.set $j (local.get $N))
    (block $narrow
      (loop $columns
        (br_if $narrow (i32.lt_s (local.get $j) (i32.const 8)))
        (local.set $A_tile (local.get $A))
        (local.set $C_tile (local.get $C))
        (local.set $i (local.get $M))
        (loop $rows
          (local.set $C1 (i32.add (local.get $C_tile) (local.get $C_down)))
          (local.set $C2 (i32.add (local.get $C1) (local.get $C_down)))
          (local.set $C3 (i32.add (local.get $C2) (local.get $C_down)))
          (if (local.get $add)
            (then
              (local.set $c00 (v128.load (local.get $C_tile)))
              (local.set $c01 (v128.load offset=16 (local.get $C_tile)))
              (local.set $c10 (v128.load (local.get $C1)))
              (local.set $c11 (v128.load offset=16 (local.get $C1)))
              (local.set $c20 (v128.load (local.get $C2)))
              (local.set $c21 (v128.load offset=16 (local.get $C2)))
              (local.set $c30 (v128.load (local.get $C3)))
              (local.set $c31 (v128.load offset=16 (local.get $C3))))
            (else
              (local.set $c00 (local.get $zero)) (local.set $c01 (local.get $zero))
              (local.set $c10 (local.get $zero)) (local.set $c11 (local.get $zero))
              (local.set $c20 (local.get $zero)) (local.set $c21 (local.get $zero))
              (local.set $c30 (local.get $zero)) (local.set $c31 (local.get $zero))))
          (local.set $a_at (local.get $A_tile))
          (local.set $b_at (local.get $B))
          (local.set $k (local.get $K))
          (loop $sum
            (local.set $b0 (v128.load (local.get $b_at)))
            (local.set $b1 (v128.load offset=16 (local.get $b_at)))
            (local.set $a (v128.load32_splat (local.get $a_at)))
            (local.set $c00 (f32x4.add (local.get $c00) (f32x4.mul (local.get $a) (local.get $b0))))
            (local.set $c01 (f32x4.add (local.get $c01) (f32x4.mul (local.get $a) (local.get $b1))))
            (local.set $a (v128.load32_splat (i32.add (local.get $a_at) (local.get $A_down))))
            (local.set $c10 (f32x4.add (local.get $c10) (f32x4.mul (local.get $a) (local.get $b0))))
            (local.set $c11 (f32x4.add (local.get $c11) (f32x4.mul (local.get $a) (local.get $b1))))
            (local.set $a (v128.load32_splat (i32.add (local.get $a_at) (local.get $A_down2))))
            (local.set $c20 (f32x4.add (local.get $c20) (f32x4.mul (local.get $a) (local.get $b0))))
            (local.set $c21 (f32x4.add (local.get $c21) (f32x4.mul (local.get $a) (local.get $b1))))
            (local.set $a (v128.load32_splat (i32.add (local.get $a_at) (local.get $A_down3))))
            (local.set $c30 (f32x4.add (local.get $c30) (f32x4.mul (local.get $a) (local.get $b0))))
            (local.set $c31 (f32x4.add (local.get $c31) (f32x4.mul (local.get $a) (local.get $b1))))
            (local.set $a_at (i32.add (local.get $a_at) (local.get $A_along)))
            (local.set $b_at (i32.add (local.get $b_at) (local.get $B_down)))
            (br_if $sum (local.tee $k (i32.sub (local.get $k) (i32.const 1)))))
          (v128.store (local.get $C_tile) (local.get $c00))
          (v128.store offset=16 (local.get $C_tile) (local.get $c01))
          (v128.store (local.get $C1) (local.get $c10))
          (v128.store offset=16 (local.get $C1) (local.get $c11))
          (v128.store (local.get $C2) (local.get $c20))
          (v128.store offset=16 (local.get $C2) (local.get $c21))
          (v128.store (local.get $C3) (local.get $c30))
          (v128.store offset=16 (local.get $C3) (local.get $c31))
          (local.set $A_tile (i32.add (local.get $A_tile) (i32.mul (local.get $A_down) (i32.const 4))))
          (local.set $C_tile (i32.add (local.get $C3) (local.get $C_down)))
          (br_if $rows (local.tee $i (i32.sub (local.get $i) (i32.const 4)))))
        (local.set $B (i32.add (local.get $B) (i32.const 32)))
        (local.set $C (i32.add (local.get $C) (i32.const 32)))
        (local.set $j (i32.sub (local.get $j) (i32.const 8)))
        (br $columns)))
    (if (i32.eqz (local.get $j)) (then (return)))

    ;; The last four columns.
    (local.set $i (local.get $M))
    (local.set $A_tile (local.get $A))
    (local.set $C_tile (local.get $C))
    (loop $rows
      (local.set $C1 (i32.add (local.get $C_tile) (local.get $C_down)))
      (local.set $C2 (i32.add (local.get $C1) (local.get $C_down)))
      (local.set $C3 (i32.add (local.get $C2) (local.get $C_down)))
      (if (local.get $add)
        (then
          (local.set $c00 (v128.load (local.get $C_tile)))
          (local.set $c10 (v128.load (local.get $C1)))
          (local.set $c20 (v128.load (local.get $C2)))
          (local.set $c30 (v128.load (local.get $C3))))
        (else
          (local.set $c00 (local.get $zero)) (local.set $c10 (local.get $zero))
          (local.set $c20 (local.get $zero)) (local.set $c30 (local.get $zero))))
      (local.set $a_at (local.get $A_tile))
      (local.set $b_at (local.get $B))
      (local.set $k (local.get $K))
      (loop $sum
        (local.set $b0 (v128.load (local.get $b_at)))
        (local.set $a (v128.load32_splat (local.get $a_at)))
        (local.set $c00 (f32x4.add (local.get $c00) (f32x4.mul (local.get $a) (local.get $b0))))
        (local.set $a (v128.load32_splat (i32.add (local.get $a_at) (local.get $A_down))))
        (local.set $c10 (f32x4.add (local.get $c10) (f32x4.mul (local.get $a) (local.get $b0))))
        (local.set $a (v128.load32_splat (i32.add (local.get $a_at) (local.get $A_down2))))
        (local.set $c20 (f32x4.add (local.get $c20) (f32x4.mul (local.get $a) (local.get $b0))))
        (local.set $a (v128.load32_splat (i32.add (local.get $a_at) (local.get $A_down3))))
        (local.set $c30 (f32x4.add (local.get $c30) (f32x4.mul (local.get $a) (local.get $b0))))
        (local.set $a_at (i32.add (local.get $a_at) (local.get $A_along)))
        (local.set $b_at (i32.add (local.get $b_at) (local.get $B_down)))
        (br_if $sum (local.tee $k (i32.sub (local.get $k) (i32.const 1)))))
      (v128.store (local.get $C_tile) (local.get $c00))
      (v128.store (local.get $C1) (local.get $c10))
      (v128.store (local.get $C2) (local.get $c20))
      (v128.store (local.get $C3) (local.get $c30))
      (local.set $A_tile (i32.add (local.get $A_tile) (i32.mul (local.get $A_down) (i32.const 4))))
      (local.set $C_tile (i32.add (local.get $C3) (local.get $C_down)))
      (br_if $rows (local.tee $i (i32.sub (local.get $i) (i32.const 4))))))

  ;; y = e^(times (x - from)) for `bytes` of numbers, a multiple of 16; y may be x.
  ;;
  ;; e^x = 2^n e^r,  n = x / ln 2 to the nearest whole number,  r = x - n ln 2,  so |r| is below 0.35,
  ;; where seven terms of the series 1 + r + r^2 / 2! + ... are as exact as a float32 can say.  2^n is
  ;; written down as it stands: n + 127 are the eight bits of a float32's exponent.  Beyond +-87 numbers
  ;; leave the range of float32, so x stops there.
  (func (export "exp") (param $y i32) (param $x_at i32) (param $bytes i32) (param $from f32) (param $times f32)
    (local $end i32) (local $x v128) (local $n v128) (local $r v128) (local $sum v128)
    (local.set $end (i32.add (local.get $y) (local.get $bytes)))
    (loop $next
      (local.set $x (f32x4.max (v128.const f32x4 -87 -87 -87 -87)
        (f32x4.min (v128.const f32x4 87 87 87 87) (f32x4.mul (f32x4.splat (local.get $times))
          (f32x4.sub (v128.load (local.get $x_at)) (f32x4.splat (local.get $from)))))))
      (local.set $n (f32x4.nearest (f32x4.mul (local.get $x)
        (v128.const f32x4 1.44269504 1.44269504 1.44269504 1.44269504))))
      ;; ln 2 in two parts, the first so short that n times it is exact
      (local.set $r (f32x4.sub (local.get $x) (f32x4.mul (local.get $n)
        (v128.const f32x4 0.693359375 0.693359375 0.693359375 0.693359375))))
      (local.set $r (f32x4.sub (local.get $r) (f32x4.mul (local.get $n)
        (v128.const f32x4 -2.12194440e-4 -2.12194440e-4 -2.12194440e-4 -2.12194440e-4))))
      (local.set $sum (v128.const f32x4 0.000198412698 0.000198412698 0.000198412698 0.000198412698)) ;; 1 / 7!
      (local.set $sum (f32x4.add (v128.const f32x4 0.00138888889 0.00138888889 0.00138888889 0.00138888889)
        (f32x4.mul (local.get $sum) (local.get $r))))
      (local.set $sum (f32x4.add (v128.const f32x4 0.00833333333 0.00833333333 0.00833333333 0.00833333333)
        (f32x4.mul (local.get $sum) (local.get $r))))
      (local.set $sum (f32x4.add (v128.const f32x4 0.0416666667 0.0416666667 0.0416666667 0.0416666667)
        (f32x4.mul (local.get $sum) (local.get $r))))
      (local.set $sum (f32x4.add (v128.const f32x4 0.166666667 0.166666667 0.166666667 0.166666667)
        (f32x4.mul (local.get $sum) (local.get $r))))
      (local.set $sum (f32x4.add (v128.const f32x4 0.5 0.5 0.5 0.5)
        (f32x4.mul (local.get $sum) (local.get $r))))
      (local.set $sum (f32x4.add (v128.const f32x4 1 1 1 1)
        (f32x4.mul (local.get $sum) (local.get $r))))
      (local.set $sum (f32x4.add (v128.const f32x4 1 1 1 1)
        (f32x4.mul (local.get $sum) (local.get $r))))
      (v128.store (local.get $y) (f32x4.mul (local.get $sum) (i32x4.shl
        (i32x4.add (i32x4.trunc_sat_f32x4_s (local.get $n)) (i32x4.splat (i32.const 127)))
        (i32.const 23))))
      (local.set $x_at (i32.add (local.get $x_at) (i32.const 16)))
      (br_if $next (i32.lt_u (local.tee $y (i32.add (local.get $y) (i32.const 16)))
        (local.get $end))))))
